"""Undo: the values that an iteration's updates have replaced, to put them back if a lost rank breaks it off."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock

import numpy as np

from scaffe.blobs.packed import PackedParameters
from scaffe.solvers.rule import Rule

ALL = slice(None)


class Undo:
    """Keeps the parameters and the history of each bucket from before an early update.

    Updates that are not early follow the last message of an iteration, which can then no longer be broken off.
    A bucket is copied just before its update, which then finds it in the cache. Buckets that no update has reached are
    not copied. From the first copy on it takes as much memory as the parameters and the history.
    """

    def __init__(self, packed: PackedParameters, rule: Rule):
        self._packed, self._rule = packed, rule
        self._kept: list[np.ndarray] = []  # made with the first copy: many runs need none
        self._lock = Lock()  # instances' threads may update buckets at once
        self._parts: list[slice] = []
        self._has_all = False

    def begin(self) -> None:
        """Begin an iteration: the last one's updates stay."""
        self._parts, self._has_all = [], False

    def keep_all(self) -> None:
        """Copy everything: users' functions follow, which may write anywhere."""
        self.keep(ALL)
        self._has_all = True

    def keep(self, part: slice) -> None:
        """Copy a bucket, whose update follows. Called by the thread that updates it."""
        if self._has_all:
            return
        with self._lock:
            self._kept = self._kept or [np.empty_like(values) for values in (self._packed.flat, *self._rule.history)]
        for kept, values in self._views(part):
            np.copyto(kept, values)
        self._parts.append(part)

    def _views(self, part: slice) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Iterate over the copies and the values of a part: parameters, and the history that this rank has."""
        place = self._rule.owned.place(part) if part != ALL else ALL
        yield self._kept[0][part], self._packed.data[part]
        yield from ((kept[place], flat[place]) for kept, flat in zip(self._kept[1:], self._rule.history, strict=True))

    def undo(self) -> None:
        """Put back what this iteration's updates have replaced."""
        for part in self._parts:
            for kept, values in self._views(part):
                np.copyto(values, kept)
        self._packed.changed(slice(None))
        self.begin()
