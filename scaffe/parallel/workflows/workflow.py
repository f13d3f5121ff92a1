"""Workflow: which ways of propagation and aggregation go together, and who drives them.

A workflow is a class in a file of its own in this package, and registers itself in its last line: then --workflow
and a cluster's file know its name, and "auto" tries it if it says so. `sync` "allreduce" makes every rank update
(swCaffe, section V.A), whatever the workflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar

from collectives import Communicator
from scaffe.net import Net
from scaffe.packed import PackedParameters
from scaffe.parallel.aggregate import Aggregate, BlockingAggregate, StagedAggregate
from scaffe.parallel.buckets import Bucket, make_buckets
from scaffe.parallel.drive import DRIVES, Helper, Hook
from scaffe.parallel.ordering import Ordering
from scaffe.parallel.propagate import Propagate, StagedPropagate
from scaffe.parallel.sums import Sums
from scaffe.parallel.world import World
from scaffe.solvers.rule import Rule


@dataclass(frozen=True)
class Parts:
    """What a workflow is made of.

    `update` makes the `rule` update a bucket of at most `bucket_bytes`. `collective` is "reduce" or "allreduce",
    `how` its keywords, and `how_down` those of broadcasts. One rank alone has no `comm`.
    """

    world: World
    comm: Communicator | None
    net: Net
    update: Callable[[Bucket], None]
    rule: Rule
    bucket_bytes: float = inf
    drive: str = "hook"
    collective: str = "reduce"
    how: Mapping[str, Any] = field(default_factory=dict)
    how_down: Mapping[str, Any] = field(default_factory=dict)


class Workflow:
    """Base class: the ways that one net's iterations take, who drives them, and what the first of them decide.

    A workflow overrides `propagation` and `aggregation`, and of the declarations below what differs.
    """

    name: ClassVar[str] = ""
    drives: ClassVar[Sequence[str]] = ()  # of DRIVES: who may drive messages under computation; () if none are there
    updates_early: ClassVar[bool] = False  # each bucket as soon as its sum is complete, unless the rule clips
    is_tried: ClassVar[bool] = False  # by "auto"
    advice: ClassVar[Mapping[str, str]] = {}  # by the kind of messages that computation waits for: why, what to try

    def __init__(self, parts: Parts):
        """Make the ways. Collective."""
        self.parts = parts
        self.early = self.updates_early and not parts.rule.clips
        self.drive: Hook | Helper = DRIVES[parts.drive]() if self.drives else Hook()
        self.buckets = self.cut()
        everywhere = parts.collective == "allreduce"
        self.propagate = self.updated_everywhere() if everywhere else self.propagation()
        self.aggregate = self.aggregation()
        self.sums = None if parts.comm is None else Sums(parts.world, self.drive.wait)
        if self.sums is not None:
            self.drive.ways = self.aggregate, self.propagate, self.sums
        self.ordering = self.order()
        starts = [bucket.layers[0] for bucket in self.buckets] if self.drives else []
        self.starts = frozenset(starts)  # layers that start a bucket: where the drive is called between layers

    @classmethod
    def by_drive(cls, asked: str) -> dict[str, str]:
        """Return the drives to try, by name: the one asked for; all that it takes for "auto", or one it does not."""
        drives = [asked] if asked in cls.drives else cls.drives
        return {f"{cls.name} by {drive}": drive for drive in drives} or {cls.name: asked}

    # What a workflow may say otherwise.

    def propagation(self) -> Propagate:
        """Return how the root's parameters reach the other ranks. Collective."""
        raise NotImplementedError

    def aggregation(self) -> Aggregate:
        """Return how the ranks' gradients meet. Collective."""
        raise NotImplementedError

    def cut(self) -> list[Bucket]:
        """Return the buckets; layers are cut only if their pieces can be updated, and sent on, one by one."""
        return make_buckets(self.parts.net, self.parts.bucket_bytes, self.early and self.parts.rule.elementwise)

    def order(self) -> Ordering | None:
        """Return what decides the order of broadcasts by the times of the first iterations, if anything does."""
        return None

    # Of what they are made.

    @property
    def comm(self) -> Communicator:
        """The collectives over the ranks, of which there are several."""
        assert self.parts.comm is not None
        return self.parts.comm

    @property
    def packed(self) -> PackedParameters:
        """The net's parameters."""
        return self.parts.net.packed

    @property
    def summing(self) -> tuple:
        """The first arguments of every Aggregate."""
        p = self.parts
        return p.world, self.packed, self.buckets, self.propagate, p.update, p.rule.clip, p.collective

    def updated_everywhere(self) -> Propagate:
        """Return the broadcast of what is changed outside iterations, as every rank updates its own parameters."""
        return Propagate(self.parts.world, self.packed, self.comm, True, algorithm="auto")  # a ring is no broadcast

    def one_broadcast(self) -> Propagate:
        """Return one broadcast of all parameters before the forward pass."""
        return Propagate(self.parts.world, self.packed, self.comm, **self.parts.how_down)

    def broadcast_by_bucket(self, ahead: float = 0.0) -> Propagate:
        """Return a broadcast for each bucket; of early updates that share of all bytes goes out at once. Collective."""
        given = self.parts.world, self.packed, self.buckets, self.comm, self.early, self.drive.wait, ahead
        return StagedPropagate(*given, **self.parts.how_down)

    def one_reduce(self) -> Aggregate:
        """Return one reduce, or allreduce, of all gradients after the backward pass."""
        return BlockingAggregate(*self.summing, comm=self.comm, **self.parts.how)

    def reduce_by_bucket(self) -> Aggregate:
        """Return a reduce, or allreduce, for each bucket, begun during the backward pass. Collective."""
        given = {"comm": self.comm, "early": self.early, "wait_until": self.drive.wait}
        return StagedAggregate(*self.summing, **given, **self.parts.how)

    # What iterations ask of it.

    def took(self) -> str:
        """Take note of an iteration; return what that decided, if anything, in a sentence. Collective."""
        return self.ordering.took() if self.ordering else ""

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to be decided."""
        return self.ordering is None or self.ordering.is_over

    def close(self) -> None:
        """End the helper thread, and give back what the ways hold, once nothing is under way. Collective."""
        self.drive.close()
        self.propagate.close()
        self.aggregate.close()
        if self.sums is not None:
            self.sums.close()


_registered: dict[str, type[Workflow]] = {}


def register(workflow: type[Workflow]) -> None:
    """Make a workflow known by its name. Raise ValueError if that is taken."""
    if workflow.name in ("", "auto", *_registered):
        raise ValueError(f"{workflow.__qualname__} needs a name of its own, not '{workflow.name}'")
    _registered[workflow.name] = workflow


def registered() -> Mapping[str, type[Workflow]]:
    """Return all workflows by name."""
    return _registered
