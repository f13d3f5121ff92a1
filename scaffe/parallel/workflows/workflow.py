"""Workflow: a form of propagation, a form of aggregation, and the drive that advances their messages.

A workflow is a class in a module of its own in this package, registered by the module's last line. Then --workflow and
a cluster's file know its name, and "auto" tries it if `is_tried`. Under any workflow, `sync` "allreduce" makes every
rank update its own parameters (swCaffe, section V.A).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from threading import Lock
from typing import Any, ClassVar, Protocol

from collectives.communicator import Communicator
from scaffe.blobs.packed import PackedParameters
from scaffe.monitor.record import SUMS
from scaffe.net.net import Net
from scaffe.parallel.aggregate import Aggregate, BlockingAggregate, StagedAggregate, nothing
from scaffe.parallel.buckets import Bucket, make_buckets
from scaffe.parallel.drive import DRIVES, Hook
from scaffe.parallel.instances.instance_nets import InstanceNets
from scaffe.parallel.ordering import Ordering
from scaffe.parallel.owners import ROOT, SLICES, are_shared, give_out, owned
from scaffe.parallel.propagate import Propagate, StagedPropagate
from scaffe.parallel.replica import Replica, Weights
from scaffe.parallel.residuals import NoResiduals, Residuals
from scaffe.parallel.rounded import RoundedParameters
from scaffe.parallel.sums import Sums
from scaffe.parallel.world import World
from scaffe.solvers.rule import Rule


class Functions(Protocol):
    """Users' functions, which an iteration calls beside its update."""

    def computed(self) -> None:
        """Follow the last backward pass of an iteration, while gradients are summed."""

    def summed(self) -> None:
        """Precede the update, once all ranks have all sums of gradients."""


@dataclass(frozen=True)
class WorkflowParts:
    """What a workflow is made of.

    - `update(bucket)`: applies the `rule` to a bucket of at most `bucket_bytes`.
    - `collective`: the sum of gradients; `how`: its keywords; `how_down`: a broadcast's, or an allgather's.
    - `comm`: None on a single rank.
    - `instances`: the nets of several instances, `net` first, None for the one net.
    - `rounded`: what iterations broadcast, None for the parameters themselves.
    - `owners`: which ranks update: a key of OWNERS. `residuals`: what earlier messages have lost of gradients.
    - `functions`: of users, on all ranks or on none; None if there are none.
    - `early`: whether a bucket may be updated before all sums of its iteration are complete; the same on all ranks.
    - `check()`: precedes the first update where none is early; it may raise.
    - `all_drives`: makers of drives, of which `drive` names one; a simulation has its own.
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
    instances: InstanceNets | None = None
    rounded: RoundedParameters | None = None
    functions: Functions | None = None
    early: bool = True
    check: Callable[[], object] = nothing
    owners: str = ROOT
    residuals: Residuals = field(default_factory=NoResiduals)
    all_drives: Mapping[str, Callable[[], Hook]] = field(default_factory=lambda: DRIVES)


class Workflow:
    """Base class: propagation, aggregation and drive of one net's iterations.

    A workflow overrides `propagation` and `aggregation`, and the declarations below that differ from the defaults:

    - `name`: for --workflow; unique.
    - `drives`: the keys of DRIVES that may advance its messages during computation; () if there are none then.
    - `updates_early`: each bucket as soon as its sum is complete, unless the rule clips gradients or users' functions
      read them, or `early` of WorkflowParts is False.
    - `is_tried`: by --workflow auto.
    - `advice`: by kind of messages, PROPAGATION or AGGREGATION: why computation waits for them, and what to try.
    """

    name: ClassVar[str] = ""
    drives: ClassVar[Sequence[str]] = ()
    updates_early: ClassVar[bool] = False
    is_tried: ClassVar[bool] = False
    advice: ClassVar[Mapping[str, str]] = {}

    def __init__(self, parts: WorkflowParts):
        """Make buckets, propagation, aggregation and drive. Collective."""
        self.parts = parts
        self._cuts = self.updates_early and not parts.rule.clips and parts.functions is None
        joins_norms = parts.owners == SLICES and not parts.rule.elementwise  # of parameters of which ranks have slices
        self.early = self._cuts and parts.early and not joins_norms
        self.drive = self._drive()
        self.buckets = owned(self.cut(), parts.owners, parts.world.size)
        everywhere = parts.collective == "allreduce"
        self.propagate = self.updated_everywhere() if everywhere else self.propagation()
        self.aggregate = self.aggregation()
        self.aggregate.residuals = parts.residuals
        self._lock, self._begun, self._early = Lock(), False, list[int]()
        self.instance_sums = parts.instances.of(self.buckets, self._summed) if parts.instances else None
        self.replicas = self.instance_sums.replicas if self.instance_sums else self._single()
        for transfer in (self.propagate, self.aggregate):
            transfer.meter.instances = len(self.replicas)
        self.sums = None if parts.comm is None else Sums(parts.world, self.drive.wait)
        if self.sums is not None:
            self.drive.transfers = self.aggregate, self.propagate, self.sums
        self.ordering = self.order()
        starts = [bucket.layers[0] for bucket in self.buckets] if self.drives else []
        self.starts = frozenset(starts)  # layers that start a bucket: the drive is called before them

    def _drive(self) -> Hook:
        """Return what advances this workflow's messages."""
        if self.parts.instances:
            return self.parts.instances.drive()
        return self.parts.all_drives[self.parts.drive]() if self.drives else Hook()

    def _single(self) -> Sequence[Replica]:
        """Return the one net, which submits its gradients itself."""
        return [Replica(self.parts.net, self.aggregate, self.parts.world.record, Weights())]

    def _summed(self, k: int) -> None:
        """Aggregate a bucket whose sum over the instances is complete, or keep it until `begin`."""
        with self._lock:
            if not self._begun:
                self._early.append(k)
                return
        self.aggregate.summed(k)
        self.drive.between()

    @classmethod
    def by_drive(cls, asked: str) -> dict[str, str]:
        """Return the drives to try, by a name for each: the one asked for, or for "auto" all of `drives`.

        A workflow without `drives` ignores the one asked for.
        """
        drives = [asked] if asked in cls.drives else cls.drives
        return {f"{cls.name} by {drive}": drive for drive in drives} or {cls.name: asked}

    # To be overridden.

    def propagation(self) -> Propagate:
        """Return how the root's parameters reach the other ranks. Collective."""
        raise NotImplementedError

    def aggregation(self) -> Aggregate:
        """Return how the ranks' gradients are summed. Collective."""
        raise NotImplementedError

    def cut(self) -> list[Bucket]:
        """Return the buckets. A layer is cut into several only if its pieces can be updated and broadcast singly.

        They do not depend on `early`, so that neither do the sums, to the bit. Where several ranks own buckets they are
        the same in all workflows, so that a rank keeps its history in a trial.
        """
        cuts = (self._cuts or self.parts.owners != ROOT) and self.parts.rule.elementwise
        return make_buckets(self.parts.net, self.parts.bucket_bytes, cuts)

    def order(self) -> Ordering | None:
        """Return what orders the broadcasts by the times of the first iterations, or None for a fixed order."""
        return None

    # To build them from.

    @property
    def comm(self) -> Communicator:
        """The collectives over the ranks; there is more than one rank."""
        assert self.parts.comm is not None
        return self.parts.comm

    @property
    def nets(self) -> Sequence[Net]:
        """The nets that this rank computes: one, or those of its instances."""
        return self.parts.instances.nets if self.parts.instances else [self.parts.net]

    @property
    def packed(self) -> PackedParameters:
        """The net's parameters."""
        return self.parts.net.packed

    @property
    def summing(self) -> tuple[Any, ...]:
        """The positional arguments of every Aggregate."""
        p = self.parts
        prepare = partial(p.rule.join_norms, p.world.allsums) if are_shared(self.buckets) else p.rule.clip
        given = p.world, self.packed, self.buckets, self.propagate, p.update, prepare, p.collective
        return *given, self.drive.each, p.check

    def updated_everywhere(self) -> Propagate:
        """Return a broadcast of changes made outside iterations, for ranks that all update their own parameters."""
        return Propagate(self.parts.world, self.packed, self.comm, True, algorithm="auto")  # a ring is no broadcast

    def one_broadcast(self) -> Propagate:
        """Return one broadcast of all parameters before the forward pass, or of each bucket by its owner."""
        given = self.parts.world, self.packed, self.comm, False, self.parts.rounded, self.buckets
        return Propagate(*given, **self.parts.how_down)

    def broadcast_by_bucket(self, ahead: float = 0.0) -> Propagate:
        """Return one broadcast per bucket; with early updates a share `ahead` of all bytes starts at once. Collective.

        The rest starts after the reduces.
        """
        given = self.parts.world, self.packed, self.buckets, self.comm, self.early, self.drive.wait, ahead
        return StagedPropagate(*given, self.parts.rounded, **self.parts.how_down)

    def one_reduce(self) -> Aggregate:
        """Return one reduce, or allreduce, of all gradients after the backward pass."""
        return BlockingAggregate(*self.summing, comm=self.comm, **self.parts.how)

    def reduce_by_bucket(self) -> Aggregate:
        """Return one reduce, or allreduce, per bucket, started during the backward pass. Collective."""
        given = {"comm": self.comm, "early": self.early, "wait_until": self.drive.wait, **self.parts.how}
        return StagedAggregate(*self.summing, **given)

    # Called by the iterations.

    def expect(self) -> None:
        """Set the gradients of all nets to zero, and expect the instances'."""
        for net in self.nets:
            net.clear_param_diffs()
        self._begun, self._early = False, []
        if self.instance_sums is not None:
            self.instance_sums.begin()

    def begin(self) -> None:
        """Begin aggregation, once the loss is known to be finite. Collective.

        Instances may be in the backward pass already: what they have summed until now is aggregated first.
        """
        self.aggregate.begin()
        with self._lock:
            self._begun, early = True, self._early
            self._early = []
        for k in early:
            self.aggregate.summed(k)

    def drain(self) -> None:
        """Complete all sums and updates, and call users' functions beside them. Collective."""
        functions = self.parts.functions
        if functions is None:
            return self.aggregate.drain()
        functions.computed()
        self.aggregate.drain(partial(self._lend_sums, functions))

    def _lend_sums(self, functions: Functions) -> None:
        """Give all ranks the sums of the gradients, and call the users' functions that read them. Collective."""
        p = self.parts
        with p.world.record.waiting(SUMS):
            if p.comm is not None and p.owners != ROOT:
                for bucket in self.buckets:
                    give_out(p.comm, self.packed.diff[bucket.part], bucket)
            elif p.comm is not None and p.collective == "reduce":
                p.comm.bcast(self.packed.diff[self.packed.learned], p.world.root)
        functions.summed()

    def took(self) -> str:
        """Note the end of an iteration; return what it decided, in a sentence, or "". Collective."""
        return self.ordering.took() if self.ordering else ""

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to be decided."""
        return self.ordering is None or self.ordering.is_over

    def break_off(self) -> None:
        """End the drive's thread, and the layers' sums of all ranks, since one is lost. Not collective."""
        if self.sums is not None:
            self.sums.break_off()
        self.drive.close()

    def nbytes(self) -> dict[str, int]:
        """Return the bytes of each bucket, by its label."""
        return {one.label(self.parts.net): self.packed.data[one.part].nbytes for one in self.buckets}

    def close(self) -> None:
        """End the drive's thread, and free the communication resources once no message is in flight. Collective."""
        self.drive.close()
        self.propagate.close()
        self.aggregate.close()
        if self.sums is not None:
            self.sums.close()


_registered: dict[str, type[Workflow]] = {}


def register(workflow: type[Workflow]) -> None:
    """Register a workflow by its name. Raise ValueError if the name is empty or taken."""
    if workflow.name in ("", "auto", *_registered):
        raise ValueError(f"{workflow.__qualname__} needs a name of its own, not '{workflow.name}'")
    _registered[workflow.name] = workflow


def registered() -> Mapping[str, type[Workflow]]:
    """Return all workflows by name."""
    return _registered
