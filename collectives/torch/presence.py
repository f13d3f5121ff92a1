"""Presence: what the ranks of a process group say in its store, so that an error can name a rank that is missing.

A rank that has waited a second in a call says so. Where one has waited too long, those that have not are missing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from torch.distributed import DistBackendError, DistStoreError

HERE, WAITS, LEFT = "here", "waits", "left"  # keys of a rank


class Presence:
    """The notes of all ranks of a group. Methods raise nothing where the store's host has ended, unless they say so."""

    def __init__(self, store: Any, rank: int, size: int):
        self._store, self.rank, self.size, self._said = store, rank, size, 0

    def meet(self, value: str, timeout: timedelta) -> list[str]:
        """Give a value to all ranks; return theirs. Raise DistBackendError, with their names, where some don't come."""
        self._store.set(self._key(HERE, self.rank), value)
        keys = [self._key(HERE, rank) for rank in range(self.size)]
        try:
            self._store.wait(keys, timeout)
        except DistStoreError:
            missing = [rank for rank, key in enumerate(keys) if not self._has(key)]
            raise DistBackendError(
                f"init_process_group: rank {self.rank} has waited {timeout.total_seconds():g} s; "
                f"{named(missing)} missing"
            ) from None
        return [self._store.get(key).decode() for key in keys]

    def say(self, number: int) -> None:
        """Say that this rank waits in call `number`."""
        if number > self._said:
            self._said = number
            self._set(WAITS, str(number))

    def leave(self) -> None:
        """Say that this rank makes no more calls."""
        self._set(LEFT, "")

    def left(self) -> list[int]:
        """Return the ranks that make no more calls."""
        return [rank for rank in range(self.size) if rank != self.rank and self._has(self._key(LEFT, rank))]

    def missing(self, number: int) -> list[int]:
        """Return the ranks that do not wait in call `number`, nor in a later one."""
        return [rank for rank in range(self.size) if rank != self.rank and self._waits_in(rank) < number]

    def _waits_in(self, rank: int) -> int:
        key = self._key(WAITS, rank)
        try:
            return int(self._store.get(key)) if self._store.check([key]) else 0
        except RuntimeError:
            return 0

    def _set(self, what: str, value: str) -> None:
        with contextlib.suppress(RuntimeError):
            self._store.set(self._key(what, self.rank), value)

    def _has(self, key: str) -> bool:
        try:
            return bool(self._store.check([key]))
        except RuntimeError:
            return False

    def _key(self, what: str, rank: int) -> str:
        return f"scaffe/{what}/{rank}"


def named(ranks: Sequence[int]) -> str:
    """Return ranks in words, with a verb."""
    if len(ranks) == 1:
        return f"rank {ranks[0]} is"
    return f"ranks {', '.join(map(str, ranks))} are" if ranks else "no rank is"
