"""Aggregation: how the ranks' gradients meet, and who updates what when.

Every way has the same methods. `begin()` comes before the backward pass whose gradients are to meet, `submit(i)` says
that layer i's are complete here, `drain()` returns when all sums are, and all updates done where they are to be done.
The ways call `update(bucket)` on the ranks that hold complete sums of the gradients there, and tell `propagate`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

from collectives import Communicator, Staged
from collectives.communicator import on_device
from scaffe.monitor.record import SUMS
from scaffe.packed import PackedParameters
from scaffe.parallel.buckets import Bucket
from scaffe.parallel.meter import Meter
from scaffe.parallel.propagate import Propagate
from scaffe.parallel.side import Host, Side
from scaffe.parallel.world import World


class Aggregate:
    """One reduce of all gradients after the backward pass (SC-B, S-Caffe section 4.1): `join(diff)`, in place.

    `prepare()` is called once all sums are complete, before any update: gradient clipping needs the norm of them all.
    If `what` is "allreduce" every rank gets the sums and updates, if "reduce" the root does.
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
    ):
        self.world, self.packed, self.buckets, self.propagate = world, packed, buckets, propagate
        self.update, self.prepare, self.what = update, prepare, what
        self.meter = Meter("aggregation")
        self.updates = what == "allreduce" or world.is_root

    def begin(self) -> None:
        """Expect all layers' gradients."""

    def submit(self, layer: int) -> None:
        """Do nothing: drain reduces all layers at once."""

    def progress(self) -> bool:
        """Return that nothing moves but in `drain`."""
        return False

    def idle(self) -> bool:
        """Say whether nothing can move until gradients are submitted."""
        return True

    def drain(self) -> None:
        """Reduce, and update. Collective."""
        self.join()
        self._update_all()

    def join(self) -> None:
        """Make the sums of all ranks' gradients."""

    def close(self) -> None:
        """Give back what it holds."""

    def _update_all(self) -> None:
        if self.updates:
            self.prepare()
        for k in range(len(self.buckets)):
            self._update(k)

    def _update(self, k: int) -> None:
        if self.updates:
            self.meter.compute(k, partial(self.update, self.buckets[k]))
        self.propagate.updated(k)


class BlockingAggregate(Aggregate):
    """One reduce, or allreduce, of all gradients after the backward pass (SC-B, S-Caffe section 4.1)."""

    def __init__(self, *given, comm: Communicator, **how: object):
        super().__init__(*given)
        self._comm, self._how = comm, how

    def join(self) -> None:
        diff = self.packed.diff[self.packed.learned]
        with self.world.record.waiting(SUMS):
            if self.what == "allreduce":
                self.meter.block(lambda: self._comm.allreduce(diff, **self._how))
            else:
                self.meter.block(lambda: self._comm.reduce(diff, root=self.world.root, **self._how))


class StagedAggregate(Aggregate):
    """A reduce for each bucket, begun when the backward pass has been through its layers (SC-OBR, S-Caffe section 4.3).

    Buckets go in one order on all ranks, the last layers' first. With `early` a bucket is updated as soon as its sum
    is complete, without when all are. `wait_until(condition)` lets messages go on until that holds.
    """

    def __init__(
        self,
        *given,
        comm: Communicator,
        early: bool,
        wait_until: Callable[[Callable[[], bool]], None],
        **how: object,
    ):
        super().__init__(*given)
        self.early, self.wait_until = early, wait_until
        self._order = list(reversed(range(len(self.buckets))))  # bucket by stage
        arrays = [self.packed.diff[self.buckets[k].part] for k in self._order]
        self._staged = Staged(comm, self.what, arrays, root=self.world.root, **how)
        self._staged.names = [f"gradients of {self.buckets[k].owners(self.packed)}" for k in self._order]
        self.meter.follow(self._staged, self._order)
        self._users: dict[int, list[int]] = {}  # stages by layer
        for stage, k in enumerate(self._order):
            for layer in self.buckets[k].layers:
                self._users.setdefault(layer, []).append(stage)
        self._missing: list[int] = []
        self._side = Side(comm.device_plans.device) if arrays and on_device(arrays[0]) else Host()
        self._finished = len(self._order)
        self._begun = self._submitted = self._busy = 0.0

    @property
    def seconds(self) -> tuple[float, float]:
        """What the last backward pass took, and how long messages of it were under way."""
        return self._submitted - self._begun, self.meter.busy - self._busy

    def begin(self) -> None:
        self._begun, self._busy = perf_counter(), self.meter.busy
        self._missing = [len(self.buckets[k].layers) for k in self._order]
        self._finished = 0
        self._staged.start()
        self.propagate.begin()

    def submit(self, layer: int) -> None:
        """Take note that the backward pass has been through a layer; called by the thread that computes."""
        for stage in self._users.get(layer, ()):
            self._missing[stage] -= 1
            if not self._missing[stage]:
                for i in self.buckets[self._order[stage]].parameters:
                    self.packed.settle(i)
                self._staged.ready(stage)
        self._submitted = perf_counter()

    def progress(self) -> bool:
        moved = self._staged.progress()
        while self._finished < len(self._order) and self._staged.done(self._finished):
            stage, self._finished = self._finished, self._finished + 1
            if self.early:
                with self._side:
                    self._staged.follow(stage)
                    self._update(self._order[stage])
        return moved

    def idle(self) -> bool:
        return self._staged.idle()

    def drain(self) -> None:
        with self.world.record.waiting(SUMS):
            for stage, k in enumerate(self._order):
                if not self._is_finished(stage):
                    self.meter.wait(k, partial(self.wait_until, partial(self._is_finished, stage)))
        if self.early:
            self._side.join()
        else:
            self._staged.follow()
            self._update_all()

    def _is_finished(self, stage: int) -> bool:
        """Say whether the stage's sum is complete, and with `early` its update done."""
        return self._finished > stage

    def close(self) -> None:
        self._staged.free()
