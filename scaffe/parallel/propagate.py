"""Propagation: how the root's parameters reach the other ranks before an iteration uses them.

Every way has the same methods. `post()` comes at the start of an iteration, `wait(i)` returns once layer i's
parameters are here, `sync()` once all are. `updated(k)` says that bucket k's new parameters stand on the root, and on
another rank that its old ones are no longer needed there; `changed()` that all have been changed outside an iteration.
All but `wait` and `updated` are collective.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from collectives import Communicator, Staged
from scaffe.monitor.record import PARAMETERS
from scaffe.packed import PackedParameters
from scaffe.parallel.buckets import Bucket
from scaffe.parallel.meter import ALL, Meter
from scaffe.parallel.world import World


class Propagate:
    """One broadcast of all parameters before the forward pass (SC-B, S-Caffe section 4.1).

    Where every rank updates its own, `everywhere`, only changes from outside are broadcast. A rank alone has no `comm`.
    """

    def __init__(
        self,
        world: World,
        packed: PackedParameters,
        comm: Communicator | None,
        everywhere: bool = False,
        **how: Any,
    ):
        self.world, self.packed, self.everywhere = world, packed, everywhere
        self.meter = Meter("propagation")
        self.stale = True
        self._comm, self._how = comm, how

    def post(self) -> None:
        """Broadcast, unless nothing changed since the last time."""
        if self.stale:
            self.broadcast()
            self.stale = False

    def broadcast(self) -> None:
        """Give all ranks the root's parameters."""
        if self._comm is not None:
            comm = self._comm
            with self.world.record.waiting(PARAMETERS):
                self.meter.block(lambda: comm.bcast(self.packed.data, self.world.root, **self._how))

    def wait(self, layer: int) -> None:
        """Return at once: post waited for everything."""

    def sync(self) -> None:
        """Make all ranks' parameters the root's, before a test or a snapshot."""
        self.post()

    def changed(self) -> None:
        """Note that the root's parameters have been changed from outside."""
        self.stale = True

    def begin(self) -> None:
        """Note that updates may come."""

    def updated(self, bucket: int) -> None:
        """Note that the root has updated."""
        if not self.everywhere:
            self.stale = True

    def progress(self) -> bool:
        """Return that nothing moves but in `post`."""
        return False

    def idle(self) -> bool:
        """Say whether nothing can move until an update, or a layer that waits."""
        return True

    @property
    def is_broken_off(self) -> bool:
        """Whether an iteration ended in an error, so that its last updates never come."""
        return False

    def close(self) -> None:
        """Give back what it holds."""


class StagedPropagate(Propagate):
    """A broadcast for each bucket, under way while the layers before it compute (SC-OB, S-Caffe section 4.2).

    Without `early` they begin in `post`, in the order of the layers. With it the last buckets, of a share `ahead` of
    all bytes, begin as soon as the root has updated them, and the others after the reduces, whose links they would
    else take, in the order of the layers; they may be under way until the next iteration's forward pass needs them.
    `wait_until(condition)` lets messages go on until that holds.
    """

    def __init__(
        self,
        world: World,
        packed: PackedParameters,
        buckets: Sequence[Bucket],
        comm: Communicator,
        early: bool,
        wait_until: Callable[[Callable[[], bool]], None],
        ahead: float = 0.0,
        **how: Any,
    ):
        super().__init__(world, packed, comm, **how)
        self.early, self.wait_until = early, wait_until
        self._comm: Communicator = comm
        self._arrays = [packed.data[bucket.part] for bucket in buckets]
        self._names = [f"parameters of {bucket.owners(packed)}" for bucket in buckets]
        self._take(ahead if early else 0.0)
        self._needed: dict[int, list[int]] = {}  # by layer: the buckets that it uses
        for k, bucket in enumerate(buckets):
            for layer in bucket.layers:
                self._needed.setdefault(layer, []).append(k)
        self._pending = False

    def _take(self, share: float) -> None:
        """Make the broadcasts, the last buckets of that share of all bytes first. Collective."""
        ahead = buckets_ahead([array.nbytes for array in self._arrays], share)
        order = [*ahead, *range(len(self._arrays) - len(ahead))]
        self.stages = [order.index(k) for k in range(len(order))]  # by bucket
        arrays = [self._arrays[k] for k in order]
        self.staged = Staged(self._comm, "bcast", arrays, root=self.world.root, **self._how)
        self.staged.names = [self._names[k] for k in order]
        self.meter.follow(self.staged, order)

    def reorder(self, share: float) -> None:
        """Let that share of all bytes go ahead from now on. Collective, between iterations."""
        self._wait_for_all()
        self.staged.free()
        self._take(share)

    def post(self) -> None:
        if self.stale:
            self._wait_for_all()
            self.broadcast()
            self.stale = self._pending = False
        elif self._pending:
            self.staged.start(ready=True)
            self._pending = False

    def wait(self, layer: int) -> None:
        """Return when layer's parameters are here; called by the thread that computes."""
        for k in self._needed.get(layer, ()):
            is_done = partial(self.staged.done, self.stages[k])
            if not is_done():
                with self.world.record.waiting(PARAMETERS):
                    self.meter.wait(k, partial(self.wait_until, is_done))
            self.staged.follow(self.stages[k])

    def sync(self) -> None:
        self.post()
        self._wait_for_all()

    def _wait_for_all(self) -> None:
        if not self.staged.done():
            with self.world.record.waiting(PARAMETERS):
                self.meter.wait(ALL, partial(self.wait_until, self.staged.done))
        self.staged.follow()

    def begin(self) -> None:
        if self.early:
            self.staged.start()

    def updated(self, bucket: int) -> None:
        if self.early:
            self.staged.ready(self.stages[bucket])
        else:
            self._pending = True

    def progress(self) -> bool:
        return self.staged.progress()

    def idle(self) -> bool:
        return self.staged.idle()

    @property
    def is_broken_off(self) -> bool:
        return not self.staged.all_ready

    def close(self) -> None:
        if not self.is_broken_off:
            self._wait_for_all()
        self.staged.free()


def buckets_ahead(nbytes: Sequence[int], share: float) -> list[int]:
    """Return the buckets from the last on, of `nbytes` each, that make up at most `share` of all bytes."""
    ahead, room = [], share * sum(nbytes)
    for k in reversed(range(len(nbytes))):
        room -= nbytes[k]
        if room < 0:
            break
        ahead.append(k)
    return ahead
