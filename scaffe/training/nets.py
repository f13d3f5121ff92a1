"""Nets of a solver, built to compute as its settings say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from readers import Reading
from scaffe import engines
from scaffe.compute import Compute
from scaffe.context import TEST, TRAIN, Context
from scaffe.devices.choices import Choices
from scaffe.net.net import Net
from scaffe.parallel.evaluate import batch_numbers
from scaffe.parallel.instances.shared_parameters import share
from scaffe.parallel.instances.team import Team
from scaffe.parallel.scatter import scatter
from scaffe.parallel.world import World
from scaffe.proto import NetParameter, SolverParameter
from scaffe.training import solver_nets


@dataclass(frozen=True)
class NetBuilder:
    """Builds the nets of a solver file for the instances of this rank, without communication.

    All nets share `choices`. `scaling` is the run's. `handed` names the layers whose parameters the train nets are
    given once they are built; no filler runs for them, nor for those that a test net takes from the train net.
    """

    param: SolverParameter
    world: World
    team: Team
    seed: int
    compute: Compute
    scaling: str
    reading: Reading
    choices: Choices
    handed: Collection[str] = ()

    def train_nets(self, allsums: Callable[[Sequence[float]], np.ndarray]) -> list[Net]:
        """Return the train net of each instance; over several, or ranks, layers sum numbers by `allsums` over ranks.

        Those of a NUMA domain's instances share their parameters: with the net of the first of them.
        """
        self.team.joined.over_ranks = allsums
        nets = self.team.build(self._train_net)
        share(self.team.places, nets)
        return nets

    def _train_net(self, instance: int) -> Net:
        world, team = self.world, self.team
        context = Context(TRAIN, self.seed, team.first + instance, team.total, self.scaling, sharers=team.sharers)
        context.handed = self.handed
        if team.total > 1:
            context.allsums = team.joined.of(instance)
        if self.reading.readers == "single" and world.size > 1:
            context.scatter = partial(scatter, world)
        net = self._built(solver_nets.train_net(self.param), context, instance)
        net.keep_diffs = net.debug_info = False  # the solver says in which iterations debug info is shown
        return net

    def test_nets(self, train_net: Net, tests_done: Callable[[], int]) -> list[list[Net]]:
        """Return each test net, one for each instance, over the train net's parameters."""
        params = zip(solver_nets.test_nets(self.param), self.param.test_iter, strict=True)
        names = frozenset(train_net.params)
        found = [self.team.build(partial(self._test_net, *given, tests_done, names)) for given in params]
        for net in (net for nets in found for net in nets):
            net.share_with(train_net)
        return found

    def _test_net(
        self,
        param: NetParameter,
        iterations: int,
        tests_done: Callable[[], int],
        handed: Collection[str],
        instance: int,
    ) -> Net:
        numbers = batch_numbers(self.team.first + instance, self.team.total, iterations, tests_done)
        net = self._built(param, Context(TEST, seed=self.seed, batch_numbers=numbers, handed=handed), instance)
        net.keep_data, net.debug_info = False, self.param.debug_info
        return net

    def _built(self, param: NetParameter, context: Context, instance: int = 0) -> Net:
        numbers = "float32" if self.compute.profile else self.compute.numbers
        threads = self.team.threads(instance, self.compute.threads)
        context.compute = replace(self.compute, numbers=numbers, threads=threads)
        context.forms = self.team.forms if self.team.size > 1 or numbers == "bf16" else None
        context.choices, context.reading = self.choices, self.reading
        context.spare_cores, context.file_mark = self.world.spare_cores, self.team.file_mark(instance)
        return Net(param, context=context, engine=engines.create(context.compute, self.world.gpu))


def described(nets: Sequence[Net]) -> dict[str, str]:
    """Return what all ranks must have built alike: their files may differ between nodes."""
    parameters = [parameter for net in nets for parameter in net.parameters]
    found = {"the nets": "\n".join(str(net.param) for net in nets)}
    return {"the parameters": "\n".join(f"{p.label} {p.blob.shape}" for p in parameters)} | found


def follow_first(nets: Sequence[Net]) -> None:
    """Make the instances' nets go on with the batch of the first, which a user may have run alone.

    They differ after an iteration that ended in an error too.
    """
    first, *others = nets
    for net in others:
        net.context.batch_number = first.context.batch_number
        for layer, leader in zip(net.data_layers(), first.data_layers(), strict=True):
            if layer.position != leader.position:
                layer.seek(leader.position)
