"""Propagation: how updated parameters reach the other ranks before an iteration uses them.

All forms have the same methods. `post()` starts an iteration, `wait(i)` returns once layer i's parameters have
arrived, `sync()` once all have. `updated(k)` is called when bucket k has its new parameters on its owner, and on the
other ranks when its old ones are no longer needed. `changed()` is called when the root's parameters were changed
outside an iteration. All methods except `wait`, `updated` and `idle` are collective.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import Any

from collectives.communicator import Communicator
from collectives.staged import Staged
from scaffe.blobs.packed import PackedParameters
from scaffe.monitor.record import PARAMETERS
from scaffe.monitor.spans import PROPAGATION
from scaffe.parallel.buckets import Bucket
from scaffe.parallel.meter import ALL, Meter
from scaffe.parallel.owners import are_shared, give_out
from scaffe.parallel.rounded import RoundedParameters
from scaffe.parallel.world import World


class Propagate:
    """One broadcast of all parameters before the forward pass (SC-B, S-Caffe section 4.1).

    With `everywhere`, every rank updates its own parameters, so that only changes made outside iterations are
    broadcast. A single rank has no `comm` and sends nothing. `how` holds the keywords of the broadcast. With `rounded`,
    iterations broadcast weights in bfloat16, and `sync` the parameters themselves. `nbytes` counts the bytes of all
    broadcasts. Where ranks other than the root own some of the `buckets`, each owner broadcasts what it has updated.
    """

    def __init__(
        self,
        world: World,
        packed: PackedParameters,
        comm: Communicator | None,
        everywhere: bool = False,
        rounded: RoundedParameters | None = None,
        buckets: Sequence[Bucket] = (),
        **how: Any,
    ):
        self.world, self.packed, self.everywhere, self.rounded = world, packed, everywhere, rounded
        self.meter = Meter(PROPAGATION, world.now)
        self.stale = True  # the root's parameters
        self.due = False  # whether owners have updated parameters since the last broadcast
        self.exact = True  # whether all ranks have the parameters unrounded, where none are stale or due
        self.nbytes = 0
        self._comm, self._how = comm, how
        self._is_shared, self._buckets = are_shared(buckets), buckets
        sliced = any(bucket.counts for bucket in buckets)
        self._how_down = {"algorithm": "auto"} if sliced else how  # an allgather's algorithm may be no broadcast's

    def post(self) -> None:
        """Broadcast the parameters if they have changed since the last broadcast. Collective."""
        if self.stale:  # unrounded where others than the root go on from it
            self.broadcast_rounded(self.rounded) if self.rounded and not self._is_shared else self.broadcast()
        elif self.due:
            self.give_out_rounded(self.rounded) if self.rounded else self.give_out()
        self.stale = self.due = False

    def broadcast(self) -> None:
        """Broadcast all of the root's parameters. Collective."""
        self._bcast(self.packed.data)
        self._note_received(slice(None))
        self.exact = True

    def give_out(self) -> None:
        """Give all ranks the owners' parameters; statistics are equal on all. Collective."""
        for bucket in self._buckets:
            self._give(self.packed.data[bucket.part], bucket)
            self._note_given(bucket)
        self.exact = True

    def give_out_rounded(self, rounded: RoundedParameters) -> None:
        """Give all ranks the owners' parameters, weights in bfloat16. Collective."""
        for bucket in self._buckets:
            for part in bucket.mine(self.world.rank):
                rounded.pack(part)
            self._give(rounded.words[rounded.part(bucket.part)], rounded.bucket(bucket))
            for part in bucket.others(self.world.rank):
                rounded.unpack(part)
            self._note_given(bucket)
        self.exact = False

    def _give(self, array: Any, bucket: Bucket) -> None:
        assert self._comm is not None
        self.nbytes += array.nbytes
        with self.world.record.waiting(PARAMETERS):
            self.meter.block(partial(give_out, self._comm, array, bucket, **self._how))

    def broadcast_rounded(self, rounded: RoundedParameters) -> None:
        """Broadcast all of the root's parameters, weights in bfloat16. Collective."""
        if self.world.is_root:
            rounded.pack(slice(None))
        self._bcast(rounded.words)
        if not self.world.is_root:
            rounded.unpack(slice(None))
        self._note_received(slice(None))
        self.exact = False

    def _bcast(self, array: Any) -> None:
        if self._comm is not None:
            comm = self._comm
            self.nbytes += array.nbytes
            with self.world.record.waiting(PARAMETERS):
                self.meter.block(lambda: comm.bcast(array, self.world.root, **self._how_down))

    def _note_received(self, part: slice) -> None:
        """Note that this rank has other parameters now, or will have before they are read, unless it is the root."""
        if not self.world.is_root:
            self.packed.changed(part)

    def _note_given(self, bucket: Bucket) -> None:
        """Note that this rank has other parameters in a bucket, or will have, where it does not own them."""
        for part in bucket.others(self.world.rank):
            self.packed.changed(part)

    def wait(self, layer: int) -> None:
        """Return at once: `post` has waited for all parameters."""

    def sync(self) -> None:
        """Make the parameters equal on all ranks, before a test or a snapshot: those of the owners. Collective."""
        if self.stale or not (self.exact or self._is_shared):
            self.broadcast()
        elif self.due or not self.exact:
            self.give_out()
        self.stale = self.due = False

    def changed(self) -> None:
        """Note that the root's parameters have been changed outside an iteration. All ranks call it alike."""
        self.stale = True

    def known(self) -> None:
        """Note that all ranks have the root's parameters. All ranks call it alike."""
        self.stale = False

    def begin(self) -> None:
        """Expect updates. All ranks call it alike."""

    def updated(self, bucket: int) -> None:
        """Note that its owner has updated a bucket."""
        if self._is_shared:
            self.due = True
        elif not self.everywhere:
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
        rounded: RoundedParameters | None = None,
        **how: Any,
    ):
        super().__init__(world, packed, comm, rounded=rounded, buckets=buckets, **how)
        self.early, self.wait_until = early, wait_until
        self._comm: Communicator = comm
        parts = [bucket.part for bucket in buckets]
        self._arrays = [rounded.words[rounded.part(one)] if rounded else packed.data[one] for one in parts]
        self._received = [True] * len(buckets)  # whether a bucket's message has replaced its parameters
        self._locks = [Lock() for _ in buckets]
        self._names = [f"parameters of {bucket.owners(packed)}" for bucket in buckets]
        self._make_stages(ahead if early else 0.0)
        self._needed: dict[int, list[int]] = {}  # by layer: the buckets that it uses
        for k, bucket in enumerate(buckets):
            for layer in bucket.layers:
                self._needed.setdefault(layer, []).append(k)

    def _make_stages(self, share: float) -> None:
        """Make the broadcasts, the last buckets of that share of all bytes first. Collective."""
        ahead = buckets_ahead([array.nbytes for array in self._arrays], share)
        order = [*ahead, *range(len(self._arrays) - len(ahead))]
        self.stages = [order.index(k) for k in range(len(order))]  # by bucket
        arrays = [self._arrays[k] for k in order]
        sent = [self.rounded.bucket(self._buckets[k]) if self.rounded else self._buckets[k] for k in order]
        whole = not any(bucket.counts for bucket in sent)
        counts = None if whole else [bucket.counts for bucket in sent]
        verb, owners = "bcast" if whole else "allgather", [bucket.owner for bucket in sent]
        self.staged = Staged(self._comm, verb, arrays, root=owners, counts=counts, **self._how)
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
        elif self.due:
            self.staged.start(ready=True)
            self._expect()
        self.stale = self.due = False

    def _expect(self) -> None:
        """Note that the broadcasts of all buckets have been started."""
        self.nbytes += sum(array.nbytes for array in self._arrays)
        if self.rounded:
            self.exact = False
            self._received = [not bucket.others(self.world.rank) for bucket in self._buckets]

    def _receive(self, k: int) -> None:
        """Replace the parameters of a bucket by those of its message, which is here. Any thread may call it."""
        if self.rounded and not self._received[k]:
            with self._locks[k]:
                if not self._received[k]:
                    for part in self._buckets[k].others(self.world.rank):
                        self.rounded.unpack(part)
                    self._received[k] = True

    def wait(self, layer: int) -> None:
        """Return once a layer's parameters have arrived. Called by the computing thread."""
        for k in self._needed.get(layer, ()):
            is_done = partial(self.staged.done, self.stages[k])
            if not is_done():
                with self.world.record.waiting(PARAMETERS):
                    self.meter.wait(k, partial(self.wait_until, is_done))
            self.staged.follow(self.stages[k])
            self._receive(k)

    def sync(self) -> None:
        """Make the parameters equal on all ranks, and wait for them. Collective."""
        if self.due and self.rounded is not None:  # no rounded ones first
            self.due = self.exact = False
        self.post()
        self._wait_for_all()
        if not self.exact:
            self.give_out() if self._is_shared else self.broadcast()

    def _wait_for_all(self) -> None:
        if not self.staged.done():
            with self.world.record.waiting(PARAMETERS):
                self.meter.wait(ALL, partial(self.wait_until, self.staged.done))
        self.staged.follow()
        for k in range(len(self._buckets)):
            self._receive(k)

    def begin(self) -> None:
        """With `early`, start the stages; each broadcasts once its bucket is updated. Collective."""
        if self.early:
            self.staged.start()
            self._expect()

    def updated(self, bucket: int) -> None:
        """With `early`, make a bucket's broadcast ready; without it, note that broadcasts are due."""
        self._note_given(self._buckets[bucket])
        for part in self._buckets[bucket].mine(self.world.rank) if self.rounded else ():
            self.rounded.pack(part)  # type: ignore[union-attr]  # which the update has left in the cache
        if self.early:
            self.staged.ready(self.stages[bucket])
        else:
            self.due = True

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
