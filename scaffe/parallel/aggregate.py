"""Aggregation: how the ranks' gradients are summed, and which rank updates which bucket when.

All forms have the same methods. `begin()` precedes the last backward pass of an iteration, `submit(i)` marks layer i's
gradients as complete on this rank, and `drain()` returns when all sums are complete and all updates are done. A form
calls `update(bucket)` on the ranks that hold complete sums, and `propagate.updated(k)` on all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from collectives.arguments import on_device
from collectives.communicator import Communicator
from collectives.staged import Staged
from scaffe.monitor.record import SUMS
from scaffe.monitor.spans import AGGREGATION
from scaffe.packed import PackedParameters
from scaffe.parallel.buckets import Bucket
from scaffe.parallel.meter import Meter
from scaffe.parallel.propagate import Propagate
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

    On a single rank it is used as it is, since its gradients are their own sums. `what` is "reduce", so that the root
    gets the sums and updates, or "allreduce", so that every rank does. `prepare()` is called once all sums are
    complete, before the first update: gradient clipping needs the norm of them all. `each(works)` calls all works, in
    any order and threads. A net submits its layers' gradients; of several instances `summed` gets their sums. A form
    that does not update early calls `ready()`, an attribute to replace, on all ranks before `prepare`, and then
    `check()`, another one, which may raise: until then no update is applied, and none waits for a message afterwards.
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
    ):
        self.each = each
        self.world, self.packed, self.buckets, self.propagate = world, packed, buckets, propagate
        self.update, self.prepare, self.what = update, prepare, what
        self.meter = Meter(AGGREGATION, world.now)
        self.ready: Callable[[], object] = nothing
        self.check: Callable[[], object] = nothing
        self.updates = what == "allreduce" or world.is_root

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

    def drain(self) -> None:
        """Complete all sums and updates. Collective."""
        self.join()
        self._update_all()

    def join(self) -> None:
        """Replace the gradients, in place, by their sums over all ranks. Collective."""

    def close(self) -> None:
        """Free the communication resources. Collective."""

    def _update_all(self) -> None:
        self.ready()
        self.check()
        if self.updates:
            self.prepare()
            self.each([partial(self._compute, k) for k in range(len(self.buckets))])
        for k in range(len(self.buckets)):
            self.propagate.updated(k)

    def _update(self, k: int) -> None:
        if self.updates:
            self._compute(k)
        self.propagate.updated(k)

    def _compute(self, k: int) -> None:
        self.meter.compute(k, partial(self.update, self.buckets[k]))


class LocalAggregate(Aggregate):
    """The sums over the instances of a single rank; with `early` each thread updates the buckets it has summed."""

    def __init__(self, *given: Any, early: bool):
        super().__init__(*given)
        self.early = early

    def summed(self, k: int) -> None:
        """With `early`, update a bucket whose sum is complete, while it is in the calling core's cache."""
        if self.early:
            self._update(k)

    def drain(self) -> None:
        """Complete all updates."""
        if not self.early:
            self._update_all()


class BlockingAggregate(Aggregate):
    """One reduce, or allreduce, of all gradients after the backward pass (SC-B, S-Caffe section 4.1)."""

    def __init__(self, *given: Any, comm: Communicator, **how: Any):
        super().__init__(*given)
        self._comm, self._how = comm, how

    def join(self) -> None:
        """Reduce, or allreduce, one piece of the gradients after the other. Collective."""
        with self.world.record.waiting(SUMS):
            for piece in self.pieces():
                self.meter.block(partial(self._sum, piece))

    def pieces(self) -> Sequence[Any]:
        """Return the arrays to sum, here one of all gradients. They have the same sizes on all ranks."""
        return [self.packed.diff[self.packed.learned]]

    def _sum(self, piece: Any) -> None:
        if self.what == "allreduce":
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
        self.staged = Staged(comm, self.what, arrays, root=self.world.root, **how)
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
                for i in self.buckets[self._order[stage]].parameters:
                    self.packed.settle(i)
                self.staged.ready(stage)
        self._submitted = self.world.now()

    def summed(self, k: int) -> None:
        """Reduce a bucket whose sum over this rank's instances is complete."""
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

    def drain(self) -> None:
        """Wait for all sums, and complete all updates. Collective."""
        with self.world.record.waiting(SUMS):
            for stage, k in enumerate(self._order):
                if not self._is_finished(stage):
                    self.meter.wait(k, partial(self.wait_until, partial(self._is_finished, stage)))
        if self.early:
            self._side.join()
        else:
            self.staged.follow()
            self._update_all()

    def _is_finished(self, stage: int) -> bool:
        """Return whether the stage's sum is complete and, with `early`, its bucket updated."""
        return self._finished > stage

    def close(self) -> None:
        """Free the stages' requests and buffers. Collective."""
        self.staged.free()
