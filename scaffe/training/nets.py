"""Nets of a solver, built to compute as its settings say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from readers import Reading
from scaffe.choices import Choices
from scaffe.compute import Compute
from scaffe.context import TEST, TRAIN, Context
from scaffe.net import Net
from scaffe.parallel.evaluate import batch_numbers
from scaffe.parallel.instances.team import Team
from scaffe.parallel.scatter import scatter
from scaffe.parallel.world import World
from scaffe.proto import NetParameter, SolverParameter
from scaffe.training import solver_nets


@dataclass(frozen=True)
class NetBuilder:
    """Builds the nets of a solver file for the instances of this rank, without communication.

    All nets share `choices`. `scaling` is the run's.
    """

    param: SolverParameter
    world: World
    team: Team
    seed: int
    compute: Compute
    scaling: str
    reading: Reading
    choices: Choices

    def train_nets(self, allsums: Callable[[Sequence[float]], np.ndarray]) -> list[Net]:
        """Return the train net of each instance; over several, or ranks, layers sum numbers by `allsums` over ranks.

        Those of a NUMA domain's instances share their parameters: with the net of the first of them.
        """
        self.team.joined.over_ranks = allsums
        nets = self.team.build(self._train_net)
        firsts: dict[int, Net] = {}  # by domain
        for place, net in zip(self.team.places, nets, strict=True):
            if (first := firsts.setdefault(place.domain, net)) is not net:
                net.share_with(first)
        return nets

    def _train_net(self, instance: int) -> Net:
        world, team = self.world, self.team
        context = Context(TRAIN, self.seed, team.first + instance, team.total, self.scaling, sharers=team.sharers)
        if team.total > 1:
            context.allsums = team.joined.of(instance)
        if self.reading.readers == "single" and world.size > 1:
            context.scatter = partial(scatter, world)
        net = self._built(solver_nets.train_net(self.param), context, instance)
        net.keep_diffs = False
        return net

    def test_nets(self, train_net: Net, tests_done: Callable[[], int]) -> list[Net]:
        """Return the test nets, over the train net's parameters."""
        params = solver_nets.test_nets(self.param)
        return [
            self._test_net(param, iterations, train_net, tests_done)
            for param, iterations in zip(params, self.param.test_iter, strict=True)
        ]

    def _test_net(self, param: NetParameter, iterations: int, train_net: Net, tests_done: Callable[[], int]) -> Net:
        numbers = batch_numbers(self.world, iterations, tests_done)
        net = self._built(param, Context(TEST, seed=self.seed, batch_numbers=numbers))
        net.share_with(train_net)
        net.keep_data = False
        return net

    def _built(self, param: NetParameter, context: Context, instance: int = 0) -> Net:
        numbers = "float32" if self.compute.profile else self.compute.numbers
        threads = self.team.threads(instance, self.compute.threads) if self.team.crew else self.world.threads
        context.compute = replace(self.compute, numbers=numbers, threads=threads)
        context.choices, context.reading = self.choices, self.reading
        context.spare_cores, context.file_mark = self.world.spare_cores, self.world.file_mark
        return Net(param, context=context, gpu=self.world.gpu)
