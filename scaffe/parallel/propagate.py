"""Propagation: how the root's parameters reach the other ranks before an iteration uses them.

All forms have the same methods. `post()` starts an iteration, `wait(i)` returns once layer i's parameters have
arrived, `sync()` once all have. `updated(k)` is called when bucket k has its new parameters on the root, and on the
other ranks when its old ones are no longer needed. `changed()` is called when parameters were changed outside an
iteration. All methods except `wait`, `updated` and `idle` are collective.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from collectives.communicator import Communicator
from collectives.staged import Staged
from scaffe.monitor.record import PARAMETERS
from scaffe.monitor.spans import PROPAGATION
from scaffe.packed import PackedParameters
from scaffe.parallel.buckets import Bucket
from scaffe.parallel.meter import ALL, Meter
from scaffe.parallel.world import World


class Propagate:
    """One broadcast of all parameters before the forward pass (SC-B, S-Caffe section 4.1).

    With `everywhere`, every rank updates its own parameters, so that only changes made outside iterations are
    broadcast. A single rank has no `comm` and sends nothing. `how` holds the keywords of the broadcast.
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
        self.meter = Meter(PROPAGATION)
        self.stale = True
        self._comm, self._how = comm, how

    def post(self) -> None:
        """Broadcast the parameters if they have changed since the last broadcast. Collective."""
        if self.stale:
            self.broadcast()
            self.stale = False

    def broadcast(self) -> None:
        """Broadcast all of the root's parameters. Collective."""
        if self._comm is not None:
            comm = self._comm
            with self.world.record.waiting(PARAMETERS):
                self.meter.block(lambda: comm.bcast(self.packed.data, self.world.root, **self._how))
            self._note_received(slice(None))

    def _note_received(self, part: slice) -> None:
        """Note that this rank has other parameters now, or will have before they are read, unless it is the root."""
        if not self.world.is_root:
            self.packed.changed(part)

    def wait(self, layer: int) -> None:
        """Return at once: `post` has waited for all parameters."""

    def sync(self) -> None:
        """Make all ranks' parameters equal to the root's, before a test or a snapshot. Collective."""
        self.post()

    def changed(self) -> None:
        """Note that parameters have been changed outside an iteration. All ranks call it alike."""
        self.stale = True

    def begin(self) -> None:
        """Expect updates. All ranks call it alike."""

    def updated(self, bucket: int) -> None:
        """Note that the root has updated a bucket."""
        if not self.everywhere:
            self.stale = True

    def progress(self) -> bool:
        """Return False: no message is in flight outside `post`."""
        return False

    def idle(self) -> bool:
        """Return whether no message can advance until an update."""
        return True

    @property
    def is_broken_off(self) -> bool:
        """Whether an iteration ended in an error, so that its last updates never come."""
        return False

    def close(self) -> None:
        """Free the communication resources. Collective."""


class StagedPropagate(Propagate):
    """One broadcast per bucket, in flight while earlier layers compute (SC-OB, S-Caffe section 4.2).

    Without `early`, all broadcasts start in `post`, in the order of the layers. With it, the last buckets, a share
    `ahead` of all bytes, start as soon as the root has updated them. The others start after the reduces, since they
    would share their links, in the order of the layers. Broadcasts may be in flight until the next iteration's forward
    pass needs them. `wait_until(condition)` makes messages advance until the condition holds.
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
        self._parts = [bucket.part for bucket in buckets]
        self._arrays = [packed.data[bucket.part] for bucket in buckets]
        self._names = [f"parameters of {bucket.owners(packed)}" for bucket in buckets]
        self._make_stages(ahead if early else 0.0)
        self._needed: dict[int, list[int]] = {}  # by layer: the buckets that it uses
        for k, bucket in enumerate(buckets):
            for layer in bucket.layers:
                self._needed.setdefault(layer, []).append(k)
        self._pending = False

    def _make_stages(self, share: float) -> None:
        """Make the broadcasts, the last buckets of that share of all bytes first. Collective."""
        ahead = buckets_ahead([array.nbytes for array in self._arrays], share)
        order = [*ahead, *range(len(self._arrays) - len(ahead))]
        self.stages = [order.index(k) for k in range(len(order))]  # by bucket
        arrays = [self._arrays[k] for k in order]
        self.staged = Staged(self._comm, "bcast", arrays, root=self.world.root, **self._how)
        self.staged.names = [self._names[k] for k in order]
        self.meter.follow(self.staged, order)

    def reorder(self, share: float) -> None:
        """Send that share of all bytes ahead of the reduces from now on. Collective, between iterations."""
        self._wait_for_all()
        self.staged.free()
        self._make_stages(share)

    def post(self) -> None:
        """Start the broadcasts that are due; broadcast all parameters if changed outside an iteration. Collective."""
        if self.stale:
            self._wait_for_all()
            self.broadcast()
            self.stale = self._pending = False
        elif self._pending:
            self.staged.start(ready=True)
            self._pending = False

    def wait(self, layer: int) -> None:
        """Return once a layer's parameters have arrived. Called by the computing thread."""
        for k in self._needed.get(layer, ()):
            is_done = partial(self.staged.done, self.stages[k])
            if not is_done():
                with self.world.record.waiting(PARAMETERS):
                    self.meter.wait(k, partial(self.wait_until, is_done))
            self.staged.follow(self.stages[k])

    def sync(self) -> None:
        """Make all ranks' parameters equal to the root's, and wait for them. Collective."""
        self.post()
        self._wait_for_all()

    def _wait_for_all(self) -> None:
        if not self.staged.done():
            with self.world.record.waiting(PARAMETERS):
                self.meter.wait(ALL, partial(self.wait_until, self.staged.done))
        self.staged.follow()

    def begin(self) -> None:
        """With `early`, start the stages; each broadcasts once its bucket is updated. Collective."""
        if self.early:
            self.staged.start()

    def updated(self, bucket: int) -> None:
        """With `early`, make a bucket's broadcast ready; without it, note that broadcasts are due."""
        self._note_received(self._parts[bucket])
        if self.early:
            self.staged.ready(self.stages[bucket])
        else:
            self._pending = True

    def progress(self) -> bool:
        """Advance the broadcasts; return whether any advanced."""
        return self.staged.progress()

    def idle(self) -> bool:
        """Return whether no broadcast can advance until an update."""
        return self.staged.idle()

    @property
    def is_broken_off(self) -> bool:
        """Whether an iteration ended in an error, so that its last updates never come."""
        return not self.staged.all_ready

    def close(self) -> None:
        """Wait for the broadcasts unless broken off, and free their requests and buffers. Collective."""
        if not self.is_broken_off:
            self._wait_for_all()
        self.staged.free()


def buckets_ahead(nbytes: Sequence[int], share: float) -> list[int]:
    """Return the indices of buckets, from the last on, that make up at most `share` of all bytes.

    `nbytes` holds the bytes of each bucket, and `share` is 0 to 1.
    """
    ahead, room = [], share * sum(nbytes)
    for k in reversed(range(len(nbytes))):
        room -= nbytes[k]
        if room < 0:
            break
        ahead.append(k)
    return ahead
