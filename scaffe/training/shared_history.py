"""SharedHistory: the update rule's history where each rank has that of the parameters that it owns.

A snapshot has the whole history, in one file. The root gathers it piece by piece, and is the only rank that ever has it
whole; restoring gives it out in the same way. So a state is the same file whichever ranks own what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from scaffe.blob import on_host
from scaffe.monitor.record import RANKS
from scaffe.parallel.buckets import Bucket
from scaffe.parallel.mirror import PIECE
from scaffe.parallel.owners import are_shared, ranges
from scaffe.parallel.world import World
from scaffe.solvers.rule import Rule


class RootHistory:
    """The history where the root has all of it, as every rank has with "allreduce"."""

    is_shared = False

    def __init__(self, rule: Rule):
        self._rule = rule

    def begin(self) -> None:
        """Make the rule have the history that this rank owns, and no other."""
        self._rule.keep([slice(0, int(self._rule.packed.flat.size))])

    def collect(self) -> None:
        """Bring the history to the root, before a snapshot. Collective."""

    def whole(self, take: Callable[[np.ndarray], np.ndarray]) -> list[np.ndarray]:
        """Return the whole history, as `take` returns arrays. On the root alone, after `collect`."""
        return [take(on_host(flat)) for flat in self._rule.history]

    def room(self) -> Sequence[Any]:
        """Return the arrays into which a whole history is restored. On the root alone."""
        return self._rule.history

    def give_out(self) -> None:
        """Give each rank what it owns of a history that was restored. Collective."""


class SharedHistory(RootHistory):
    """The history where several ranks own parts; each rank's rule has its part, and the root gathers copies."""

    is_shared = True

    def __init__(self, world: World, rule: Rule, buckets: Sequence[Bucket]):
        super().__init__(rule)
        self._world, self._buckets = world, buckets
        self._whole: list[np.ndarray] = []  # on the root: room for all, while a snapshot is taken or restored

    def begin(self) -> None:
        """Make the rule have the history that this rank owns, and no other."""
        self._rule.keep(ranges(self._buckets, self._world.rank))

    def collect(self) -> None:
        """Gather the history in copies of the root, in messages of at most PIECE elements. Collective."""
        comm, root = self._world.comm, self._world.root
        room: list[np.ndarray] = self.room() if self._world.is_root else []  # type: ignore[assignment]
        with self._world.record.waiting(RANKS):
            for slot, owner, part in self._parts():
                if owner == self._world.rank:
                    values = np.ascontiguousarray(on_host(self._mine(slot, part)))
                    if owner == root:
                        room[slot][part] = values
                    else:
                        comm.Send(values, root)
                elif self._world.is_root:
                    comm.Recv(room[slot][part], owner)

    def whole(self, take: Callable[[np.ndarray], np.ndarray]) -> list[np.ndarray]:
        """Return what `collect` has gathered: copies already, which are the caller's from now on.

        One that is written while training goes on is not changed by what is gathered next.
        """
        whole, self._whole = self._whole, []
        return whole

    def room(self) -> Sequence[Any]:
        """Return the root's arrays, as long as the packed ones."""
        if not self._whole:
            self._whole = [np.zeros(self._rule.packed.flat.size, np.float32) for _ in self._rule.history]
        return self._whole

    def give_out(self) -> None:
        """Send each rank its part of what is in the root's arrays, in messages as `collect` has. Collective."""
        comm, root = self._world.comm, self._world.root
        with self._world.record.waiting(RANKS):
            for slot, owner, part in self._parts():
                if self._world.is_root:
                    if owner == root:
                        self._mine(slot, part)[...] = self._rule.packed.xp.asarray(self._whole[slot][part])
                    else:
                        comm.Send(self._whole[slot][part], owner)
                elif owner == self._world.rank:
                    values = np.empty(part.stop - part.start, np.float32)
                    comm.Recv(values, root)
                    self._mine(slot, part)[...] = self._rule.packed.xp.asarray(values)
        self._whole = []

    def _parts(self) -> Iterator[tuple[int, int, slice]]:
        """Iterate over the messages: the index of a history value, the owner, the part of the packed arrays."""
        for slot in range(len(self._rule.history)):
            for owner in range(self._world.size):
                for one in ranges(self._buckets, owner):
                    for start in range(one.start, one.stop, PIECE):
                        yield slot, owner, slice(start, min(start + PIECE, one.stop))

    def _mine(self, slot: int, part: slice) -> Any:
        """Return this rank's history of a part that it owns."""
        return self._rule.history[slot][self._rule.owned.place(part)]


class RuleHistory:
    """The history, whichever ranks own it now: a RootHistory or a SharedHistory, which `follow` exchanges."""

    def __init__(self, world: World, rule: Rule):
        self._world, self._rule = world, rule
        self.now, self.buckets = RootHistory(rule), list[Bucket]()

    def begin(self, buckets: Sequence[Bucket]) -> None:
        """Begin with these buckets' owners, each of which has its history already if there is one."""
        self.now, self.buckets = self._of(buckets), [*buckets]
        if self.now.is_shared:
            self.now.begin()

    def follow(self, buckets: Sequence[Bucket]) -> None:
        """Give the history to the owners of these buckets. Collective."""
        after = self._of(buckets)
        self.now.collect()
        whole = self.now.whole(np.copy) if self._world.is_root else []
        after.begin()
        for room, values in zip(after.room() if self._world.is_root else [], whole, strict=True):
            room[...] = values if isinstance(room, np.ndarray) else self._rule.packed.xp.asarray(values)
        after.give_out()
        self.now, self.buckets = after, [*buckets]

    def _of(self, buckets: Sequence[Bucket]) -> RootHistory:
        is_shared = self._world.size > 1 and are_shared(buckets)
        return SharedHistory(self._world, self._rule, buckets) if is_shared else RootHistory(self._rule)


def describe(rule: Rule, buckets: Sequence[Bucket], size: int, owners: str) -> str:
    """Return what each of `size` ranks has of the history, in a sentence."""
    counts = [sum(part.stop - part.start for part in ranges(buckets, rank)) for rank in range(size)]
    each = [4 * len(rule.history) * count for count in counts]
    share = max(counts) / max(sum(counts), 1)
    takes = f"{min(each)} to {max(each)} bytes a rank, at most {share:.3g} of all"
    return f"Owners {owners}: {len(buckets)} bucket(s) on {size} ranks; {rule.kind}'s history takes {takes}"
