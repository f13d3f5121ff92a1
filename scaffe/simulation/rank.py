"""The stand-ins of one simulated rank: what a workflow and an iteration use of a world, a net and an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil, log2
from types import SimpleNamespace
from typing import Any

import numpy as np

from collectives.model.clusters import Cluster
from collectives.simulation.ranks import SimulatedRank
from scaffe.engine import Group
from scaffe.monitor.record import RankRecord
from scaffe.monitor.spans import BACKWARD, FORWARD, READ, WAIT, Span
from scaffe.net.net import Net
from scaffe.parallel.buckets import Bucket, suited_bytes
from scaffe.parallel.run import AUTO, Run
from scaffe.parallel.suited import suited_to
from scaffe.setting import parse_bytes
from scaffe.simulation.closed_forms import CHUNKS
from scaffe.simulation.clusters import DescribedCluster
from scaffe.simulation.layer_times import LayerTimes

READ_AHEAD = 3  # batches that reader threads hold ready


class SimulatedWorld:
    """A rank's World: its number, its clock, and sums over all ranks."""

    root = 0

    def __init__(self, rank: SimulatedRank, size: int, small: float):
        self.owner, self.rank, self.size, self._small = rank, rank.number, size, small
        self.record, self.now = RankRecord(), rank.now
        self.comm: Any = SimpleNamespace(Dup=lambda: SimpleNamespace(Free=lambda: None))

    @property
    def is_root(self) -> bool:
        """Whether this rank is the root."""
        return self.rank == self.root

    def allsums(self, values: Any) -> np.ndarray:
        """Return the sums of the values over all ranks, a small message's time after the last has come. Collective."""
        return self.owner.world.meet(self.owner, values, self._small)


def small_message(cluster: DescribedCluster, ranks: int) -> float:
    """Return the seconds of an allreduce of a few numbers: a round for each doubling, within nodes and between them."""
    inside = min(ranks, int(cluster["devices"]))
    nodes = ceil(ranks / inside)
    return ceil(log2(inside)) * cluster["alpha_in"] + ceil(log2(nodes)) * cluster["alpha"]


def bucket_bytes(run: Run, total: int, links: Cluster, ranks: int) -> float:
    """Return the most bytes of a bucket; for "auto" those that suit the algorithm or the links, of `total` bytes."""
    if run.bucket_bytes != AUTO:
        return parse_bytes(run.bucket_bytes)
    if given := suited_to(run, total, links, ranks, CHUNKS):
        return given
    inside = ranks <= links.ranks_per_node
    alpha, beta = (links.alpha_in, links.beta_in) if inside else (links.alpha, links.beta)
    return suited_bytes(total, alpha, beta, ranks)


class SimulatedParameters:
    """The packed parameters of a net, without memory: arrays have lengths and types alone."""

    def __init__(self, net: Net):
        packed = net.packed
        self.parameters, self.slices = packed.parameters, packed.slices
        self.learned, self.statistics, self.nbytes = packed.learned, packed.statistics, packed.nbytes
        self.data = self.diff = np.broadcast_to(np.float32(0), packed.flat.size)

    def changed(self, part: slice) -> None:
        """Do nothing: there are no values."""

    def settle(self, i: int) -> None:
        """Do nothing: there are no values."""


class SimulatedNet:
    """A rank's net: the layers and parameters of a built net, and an engine that takes their times."""

    def __init__(self, net: Net, packed: SimulatedParameters, engine: SimulatedEngine):
        self.layers, self.nodes, self.packed, self.engine = net.layers, net.nodes, packed, engine
        self.context = SimpleNamespace(scatter=None, batch_number=0)

    def groups(self, starts: Iterable[int] = ()) -> list[Group]:
        """Return the layers in groups that a message may precede."""
        return self.engine.groups(self, starts)

    def clear_param_diffs(self) -> None:
        """Do nothing: there are no values."""


class SimulatedEngine:
    """Takes the times of layers. `spans`, if a list, gets a span of each.

    `in_groups` computes the layers between two messages in one go. Otherwise messages are handled after each layer.
    """

    def __init__(self, rank: SimulatedRank, times: LayerTimes, factor: float, read: float, in_groups: bool):
        self.rank, self.times, self.factor, self._read, self._in_groups = rank, times, factor, read, in_groups
        self.spans: list[Span] | None = None
        self._read_until: list[float] = []  # when each of the last batches had been read, and was taken
        self._taken: list[float] = []

    def groups(self, net: Any, starts: Iterable[int]) -> list[Group]:
        """Return the groups of layers."""
        cuts = sorted({0, *starts} if self._in_groups else range(len(net.layers)))
        return [tuple(range(a, b)) for a, b in zip(cuts, [*cuts[1:], len(net.layers)], strict=True)]

    def enter(self) -> None:
        """Do nothing: the thread needs no device."""

    def loss(self, net: Any) -> Any:
        """Return a loss without a value."""
        return SimpleNamespace(add=lambda passes: None, send=lambda: None)

    def forward(self, net: Any, group: Group) -> None:
        """Take the forward times of a group; before the first layer, wait for the batch."""
        if 0 in group and self._read:
            self._take_batch(net)
        for i in group:
            self._take(FORWARD, net, i, self.times.forward[i])

    def backward(self, net: Any, group: Group) -> None:
        """Take the backward times of a group."""
        for i in reversed(group):
            self._take(BACKWARD, net, i, self.times.backward[i])
        self.rank.catch_up()

    def _take(self, kind: str, net: Any, i: int, seconds: float) -> None:
        begin = self.rank.clock
        self.rank.spend(self.factor * seconds)
        if self.spans is not None and seconds:
            self.spans.append(Span(kind, net.layers[i].name, begin, self.rank.clock, "compute"))

    def _take_batch(self, net: Any) -> None:
        """Wait until the next batch has been read: after the one before it, and once there is room for it."""
        room = self._taken[-READ_AHEAD] if len(self._taken) >= READ_AHEAD else 0.0
        begin = max(self._read_until[-1] if self._read_until else 0.0, room)
        self._read_until.append(begin + self._read)
        waited, self.rank.clock = self.rank.clock, max(self.rank.clock, self._read_until[-1])
        self._taken.append(self.rank.clock)
        if self.spans is not None:
            name = net.layers[0].name
            self.spans.append(Span(READ, name, begin, self._read_until[-1], f"reader {name}"))
            self.spans.append(Span(WAIT, name, waited, self.rank.clock, "compute", READ))


class SimulatedRule:
    """An update rule that clips nothing and divides into pieces."""

    clips, elementwise = False, True

    def clip(self) -> None:
        """Do nothing."""

    def join_norms(self, allsums: object) -> None:
        """Do nothing."""


def updating(rank: SimulatedRank, times: LayerTimes) -> Callable[[Bucket], None]:
    """Return the update of a bucket: it takes a time for each of its parameters that the rank owns."""

    def update(bucket: Bucket) -> None:
        own = bucket.mine(rank.number) if bucket.counts else [bucket.part]
        rank.spend(times.update * sum(part.stop - part.start for part in own))

    return update
