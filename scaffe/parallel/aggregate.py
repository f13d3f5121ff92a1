"""Aggregation: how the ranks' gradients are summed, and which rank updates which bucket when.

All forms have the same methods. `begin()` precedes the last backward pass of an iteration, `submit(i)` marks layer i's
gradients as complete on this rank, and `drain()` returns when all sums are complete and all updates are done. A form
calls `update(bucket)` on the ranks that hold complete sums, and `propagate.updated(k)` on all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from collectives.arguments import on_device
from collectives.communicator import Communicator
from collectives.execution.plans import Plan
from collectives.staged import Staged
from collectives.verbs import VERBS
from scaffe.blobs.packed import PackedParameters
from scaffe.monitor.record import SUMS
from scaffe.monitor.spans import AGGREGATION
from scaffe.parallel.buckets import Bucket
from scaffe.parallel.meter import Meter
from scaffe.parallel.owners import are_shared
from scaffe.parallel.propagate import Propagate
from scaffe.parallel.residuals import NoResiduals, Residuals
from scaffe.parallel.side import NoStream, SideStream
from scaffe.parallel.world import World


def in_turn(works: Sequence[Callable[[], object]]) -> None:
    """Call all works in the calling thread."""
    for work in works:
        work()


def nothing() -> None:
    """Do nothing between the sums and the updates."""


class Aggregate:
    """Base class: sum all gradients by `join` after the backward pass, then update all buckets.

    On a single rank it is used as it is, since its gradients are their own sums. `what` is "reduce", so that a bucket's
    owner gets the sums and updates, "reduce_scatter", so that each rank does for its slice, or "allreduce", so that
    every rank does. `prepare()` is called once all sums are complete, before the first update: gradient clipping needs
    the norm of them all. It is collective where ranks other than the root own buckets. `each(works)` calls all works,
    in any order and threads. A net submits its layers' gradients; of several instances `summed` gets their sums. A form
    that does not update early calls `check()` on all ranks before `prepare`, which may raise: until then no update is
    applied, and none waits for a message afterwards.
    """

    def __init__(
        self,
        world: World,
        packed: PackedParameters,
        buckets: Sequence[Bucket],
        propagate: Propagate,
        update: Callable[[Bucket], None],
        prepare: Callable[[], object],
        what: str = "reduce",
        each: Callable[[Sequence[Callable[[], object]]], object] = in_turn,
        check: Callable[[], object] = nothing,
    ):
        self.each = each
        self.world, self.packed, self.buckets, self.propagate = world, packed, buckets, propagate
        self.update, self.prepare, self.what = update, prepare, what
        self.meter = Meter(AGGREGATION, world.now)
        self.check = check
        self.residuals: Residuals = NoResiduals()
        everywhere, self._is_shared = what == "allreduce", are_shared(buckets)
        self.shares = [
            one if everywhere else one.share(world.rank, packed) for one in buckets
        ]  # what this rank updates

    @property
    def updates(self) -> bool:
        """Whether this rank gets sums, and updates."""
        return any(map(self._owns, range(len(self.buckets))))

    def begin(self) -> None:
        """Expect the gradients of all layers."""

    def submit(self, layer: int) -> None:
        """Do nothing: `drain` sums all layers at once."""

    def summed(self, k: int) -> None:
        """Mark bucket k's sum over this rank's instances as complete. Any thread may call it; it calls no MPI."""

    def finish(self) -> None:
        """Return at once: there are no instances' sums to help with."""

    def progress(self) -> bool:
        """Return False: no message is in flight outside `drain`."""
        return False

    def idle(self) -> bool:
        """Return whether no message can advance until more gradients are submitted."""
        return True

    def drain(self, ready: Callable[[], object] = nothing) -> None:
        """Complete all sums, call `ready()` where no update is early, and complete all updates. Collective."""
        self.residuals.add_all()
        self.join()
        self.residuals.added()
        self._update_all(ready)

    def give_lost(self, flat: np.ndarray) -> None:
        """Add what rounding has lost in this rank's messages to a flat array, and keep it no longer."""

    def join(self) -> None:
        """Replace the gradients, in place, by their sums over all ranks. Collective."""

    def close(self) -> None:
        """Free the communication resources. Collective."""

    def _update_all(self, ready: Callable[[], object]) -> None:
        ready()
        self.check()
        mine = [k for k in range(len(self.buckets)) if self._owns(k)]
        if mine or self._is_shared:
            self.prepare()
        if mine:
            self.each([partial(self._compute, k) for k in mine])
        for k in range(len(self.buckets)):
            self.propagate.updated(k)

    def _update(self, k: int) -> None:
        if self._owns(k):
            self._compute(k)
        self.propagate.updated(k)

    def _owns(self, k: int) -> bool:
        """Return whether this rank updates a bucket."""
        return self.shares[k] is not None

    def _compute(self, k: int) -> None:
        share = self.shares[k]
        assert share is not None
        self.meter.compute(k, partial(self.update, share))


class LocalAggregate(Aggregate):
    """The sums over the instances of a single rank; with `early` each thread updates the buckets it has summed."""

    def __init__(self, *given: Any, early: bool):
        super().__init__(*given)
        self.early = early

    def summed(self, k: int) -> None:
        """With `early`, update a bucket whose sum is complete, while it is in the calling core's cache."""
        self.residuals.add(self.buckets[k].part)
        if self.early:
            self._update(k)

    def drain(self, ready: Callable[[], object] = nothing) -> None:
        """Complete all updates."""
        self.residuals.added()
        if not self.early:
            self._update_all(ready)


class BlockingAggregate(Aggregate):
    """One reduce, or allreduce, of all gradients after the backward pass (SC-B, S-Caffe section 4.1).

    Where buckets have different owners it is one for each bucket.
    """

    def __init__(self, *given: Any, comm: Communicator, **how: Any):
        super().__init__(*given)
        self._comm, self._how = comm, how

    def join(self) -> None:
        """Reduce, or allreduce, one piece of the gradients after the other. Collective."""
        with self.world.record.waiting(SUMS):
            messages = self._messages()
            for k, bucket in enumerate(messages):
                self.meter.block(partial(self._sum_bucket, k, bucket))
            for piece in () if messages else self.pieces():
                self.meter.block(partial(self._sum, piece))

    def _messages(self) -> Sequence[Bucket]:
        """Return what is summed by a plan of its own: each bucket, or all gradients where messages are rounded."""
        if self._is_shared or "numbers" not in self._how:
            return self.buckets if self._is_shared else []
        return [Bucket(self.packed.learned, (), (), owner=self.world.root)] if self.buckets else []

    def give_lost(self, flat: np.ndarray) -> None:
        """Add what the plans' messages have lost."""
        for k, bucket in enumerate(self._messages()):
            self._plan(k, bucket).give_lost(flat[bucket.part])

    def _sum_bucket(self, k: int, bucket: Bucket) -> None:
        """Reduce a bucket's gradients to its owner, or give each rank the sums of its slice."""
        self._plan(k, bucket).run()

    def _plan(self, k: int, bucket: Bucket) -> Plan:
        """Return the plan of a bucket's sum."""
        gradients, blocks = self.packed.diff[bucket.part], bucket.counts or None
        return self._comm.plan(self.what, gradients, root=bucket.owner, number=k, counts=blocks, **self._how)

    def pieces(self) -> Sequence[Any]:
        """Return the arrays to sum, here one of all gradients. They have the same sizes on all ranks."""
        return [self.packed.diff[self.packed.learned]]

    def _sum(self, piece: Any) -> None:
        if VERBS[self.what].spreads:
            self._comm.allreduce(piece, **self._how)
        else:
            self._comm.reduce(piece, root=self.world.root, **self._how)


class StagedAggregate(Aggregate):
    """One reduce per bucket, started as soon as the backward pass has computed its layers (SC-OBR, section 4.3).

    The buckets' messages start in the same order on all ranks, the last layers' first. With `early` a bucket is
    updated as soon as its sum is complete; without it, once all sums are. `wait_until(condition)` makes messages
    advance until the condition holds.
    """

    def __init__(
        self,
        *given: Any,
        comm: Communicator,
        early: bool,
        wait_until: Callable[[Callable[[], bool]], None],
        **how: Any,
    ):
        super().__init__(*given)
        self.early, self.wait_until = early, wait_until
        self._order = list(reversed(range(len(self.buckets))))  # bucket by stage
        arrays = [self.packed.diff[self.buckets[k].part] for k in self._order]
        owners, blocks = [self.buckets[k].owner for k in self._order], [self.buckets[k].counts for k in self._order]
        self.staged = Staged(comm, self.what, arrays, root=owners, counts=blocks if any(blocks) else None, **how)
        self.staged.names = [f"gradients of {self.buckets[k].owners(self.packed)}" for k in self._order]
        self.meter.follow(self.staged, self._order)
        self._users: dict[int, list[int]] = {}  # stages by layer
        for stage, k in enumerate(self._order):
            for layer in self.buckets[k].layers:
                self._users.setdefault(layer, []).append(stage)
        self._missing: list[int] = []  # by stage: layers whose gradients are not complete yet
        self._side = SideStream(comm.device_plans.device) if arrays and on_device(arrays[0]) else NoStream()
        self._finished = len(self._order)
        self._begun = self._submitted = self._busy = 0.0

    @property
    def seconds(self) -> tuple[float, float]:
        """Seconds of the last backward pass, and seconds in which its messages were in flight."""
        return self._submitted - self._begun, self.meter.busy - self._busy

    def begin(self) -> None:
        """Start the stages of an iteration; each reduces once its layers are submitted. Collective."""
        self._begun, self._busy = self.world.now(), self.meter.busy
        self._missing = [len(self.buckets[k].layers) for k in self._order]
        self._finished = 0
        self.staged.start()
        self.propagate.begin()

    def submit(self, layer: int) -> None:
        """Mark a layer's gradients as complete on this rank. Called by the computing thread; calls no MPI."""
        for stage in self._users.get(layer, ()):
            self._missing[stage] -= 1
            if not self._missing[stage]:
                bucket = self.buckets[self._order[stage]]
                for i in bucket.parameters:
                    self.packed.settle(i)
                self.residuals.add(bucket.part)
                self.staged.ready(stage)
        self._submitted = self.world.now()

    def summed(self, k: int) -> None:
        """Reduce a bucket whose sum over this rank's instances is complete."""
        self.residuals.add(self.buckets[k].part)
        self.staged.ready(len(self._order) - 1 - k)
        self._submitted = self.world.now()

    def progress(self) -> bool:
        """Advance the messages, and with `early` update the completed buckets; return whether anything advanced."""
        moved = self.staged.progress()
        while self._finished < len(self._order) and self.staged.done(self._finished):
            stage, self._finished = self._finished, self._finished + 1
            if self.early:
                with self._side:
                    self.staged.follow(stage)
                    self._update(self._order[stage])
        return moved

    def idle(self) -> bool:
        """Return whether no message can advance until more gradients are submitted."""
        return self.staged.idle()

    def drain(self, ready: Callable[[], object] = nothing) -> None:
        """Wait for all sums, and complete all updates. Collective."""
        with self.world.record.waiting(SUMS):
            for stage, k in enumerate(self._order):
                if not self._is_finished(stage):
                    self.meter.wait(k, partial(self.wait_until, partial(self._is_finished, stage)))
        self.residuals.added()
        if self.early:
            self._side.join()
        else:
            self.staged.follow()
            self._update_all(ready)

    def give_lost(self, flat: np.ndarray) -> None:
        """Add what the stages' messages have lost."""
        for stage, k in enumerate(self._order):
            self.staged.give_lost(stage, flat[self.buckets[k].part])

    def _is_finished(self, stage: int) -> bool:
        """Return whether the stage's sum is complete and, with `early`, its bucket updated."""
        return self._finished > stage

    def close(self) -> None:
        """Free the stages' requests and buffers. Collective."""
        self.staged.free()
