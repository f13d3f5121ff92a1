"""AutoInstances: what a run's Instances leave to "auto", timed in its first iterations or taken from a snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from scaffe.errors import PlanError, ScaffeError
from scaffe.monitor.log import log
from scaffe.net.net import Net
from scaffe.parallel.instances.gathers.gather import known
from scaffe.parallel.instances.instances import AUTO, Instances
from scaffe.parallel.instances.places import candidates
from scaffe.parallel.instances.team import Team, own_topology
from scaffe.parallel.instances.trial import InstancesTrial, without_auto
from scaffe.parallel.world import World
from scaffe.training.snapshots import INSTANCES


class AutoInstances:
    """The instances of a run, which change while those that are "auto" are timed.

    - `present`: the instances of this iteration, without "auto".
    - `is_settled`: whether they stay.
    - `kept`: what was taken, by the settings, batch and cores that it was taken for: a snapshot keeps it.

    The trial ends before that of workflows begins. Making it is collective, as are its methods.
    """

    def __init__(self, world: World, given: Instances, deterministic: bool):
        self.world, self.given, self.deterministic = world, given, deterministic
        self.present = without_auto(given)
        self.is_settled = self._is_given = given.n == "1" or self.present == given
        self.kept: dict[str, str] = {}
        self._trial: InstancesTrial | None = None
        self._taken: Instances | None = None
        self._work = ""

    def _key(self, net: Net) -> str:
        """Return the settings, the batch and the ranks' cores, as a plan's piece of work."""
        given, batch = self.given, " and ".join(map(str, sorted(net.context.batches)))
        topology = self.world.together(lambda: own_topology(self.world))
        ranks = self.world.allgather((len(topology.cores), len(topology.domains)))
        cores = " or ".join(f"{cores} core(s) in {domains} domain(s)" for cores, domains in sorted(set(ranks)))
        return (
            f"{INSTANCES}{given.n}, gather {given.gather}, {given.launch_groups} launch group(s), "
            f"delay {given.launch_delay}, for a batch of {batch} on {len(ranks)} rank(s) with {cores}"
        )

    def next(self, net: Net, team: Team) -> Instances:
        """Go on to the instances of the next iteration, and return them. `net` and `team` are those of the last."""
        if self._trial is None and self._taken is None:
            self._work = self._key(net)
            trial = InstancesTrial(self.given, self._counts(net, team), self._gathers(), self.world.allgather)
            self._trial, self._taken = (None, trial.present) if trial.is_over else (trial, None)
        self.is_settled = self._trial is None
        self.present = self._trial.present if self._trial else self._taken or self.present
        return self.present

    def took(self, seconds: float) -> str:
        """Record an iteration's time on this rank; return what the trial has taken in a sentence, or ""."""
        if self._trial is None:
            return ""
        if decided := self._trial.took(seconds):
            self._taken, self._trial = self._trial.present, None
            self.kept[self._work] = as_text(self._taken)
        return decided

    @property
    def settled(self) -> Instances | None:
        """The instances that stay, None while some are timed."""
        return self.present if self.is_settled else self._taken

    def go_on(self, settled: Instances | None) -> None:
        """Go on among other ranks, with what these have settled on; without that, time again. All call it alike."""
        if self._is_given:
            return
        if settled is None:
            log.info("Instances: timed again, on %d rank(s)", self.world.size)
        self._trial, self._taken = None, settled
        self.present, self.is_settled = settled or without_auto(self.given), settled is not None

    def restored(self, net: Net) -> None:
        """Take what a snapshot has kept for these settings, batch and cores; without that, go on timing."""
        if self._is_given or not self.kept:
            return
        self._work = self._key(net)
        if way := self.kept.get(self._work):
            self._taken, self._trial = self.world.together(lambda: parsed(way, self.given)), None
            self.is_settled = False
            log.info("Instances: %s, as the snapshot says", way)
        elif not self.is_settled:
            log.info("Instances: timed again; the snapshot has %s; these are %s", " and ".join(self.kept), self._work)

    def _gathers(self) -> Sequence[str]:
        """Return the gathers to try; where bits must repeat one, since each adds in another order."""
        return [self.present.gather] if self.deterministic else known().split(", ")

    def _counts(self, net: Net, team: Team) -> Mapping[str, Sequence[int]]:
        """Return the numbers to try, each with the instances of each rank; only 1 where no more are possible."""
        if self.given.n != AUTO:
            return {self.given.n: self.world.allgather(team.size)}
        of_ranks = self.world.allgather(candidates(own_topology(self.world)))
        if reason := undivided(net, self.world):
            log.info("Instances: 1, since %s", reason)
            return {"1": [1] * self.world.size}
        counts: dict[str, list[int]] = {}
        for n in of_ranks[0]:
            of_n = [of_rank[n] for of_rank in of_ranks]
            if of_n not in counts.values() and sum(of_n) <= max(net.context.batches):
                counts[n] = of_n
        if len(counts) == 1:
            text = "Instances: 1, since %d rank(s) with at most %d core(s) each have a batch of %d"
            log.info(text, self.world.size, max(one["core"] for one in of_ranks), max(net.context.batches))
        return counts


def undivided(net: Net, world: World) -> str:
    """Return why a net, a rank's only one, can't be divided over instances in training, "" if it can."""
    context = net.context
    if world.gpu is not None:
        return "each rank has a GPU"
    if context.scaling == "weak":
        return "with weak scaling the number of instances would change the global batch"
    for layer, bottom in zip(net.layers, net.bottoms, strict=True):
        if reason := layer.mixes_samples(bottom) or layer.unsaved:
            return f"layer '{layer.name}' ({layer.type}) can't be divided in training: {reason}"
    if len(context.batches) != 1:
        return f"the data layers have batches of {' and '.join(map(str, sorted(context.batches))) or 'no size'}"
    return ""


def as_text(taken: Instances) -> str:
    """Return what was taken as a plan's way, which has no colon."""
    return ", ".join((taken.n, taken.gather.replace(":", " "), taken.launch_delay))


def parsed(way: str, given: Instances) -> Instances:
    """Return the instances of a plan's way. Raise PlanError for text that is none."""
    try:
        n, gather, delay = way.split(", ")
        found = replace(given, n=n, gather=gather.replace(" ", ":"), launch_delay=delay)
    except (ValueError, ScaffeError) as error:
        raise PlanError(
            f"a snapshot's instances must be a number, a gather and a delay, got '{way}': {error}"
        ) from None
    return without_auto(found)
