"""Undo: the values that an iteration's updates have replaced, to put them back if a lost rank breaks it off."""

from __future__ import annotations

from threading import Lock

import numpy as np

from scaffe.packed import PackedParameters
from scaffe.solvers.rule import Rule


class Undo:
    """Keeps the parameters and the history of each bucket from before an early update.

    Updates that are not early follow the last message of an iteration, which can then no longer be broken off.
    A bucket is copied just before its update, which then finds it in the cache. Buckets that no update has reached are
    not copied. From the first copy on it takes as much memory as the parameters and the history.
    """

    def __init__(self, packed: PackedParameters, rule: Rule):
        self._packed, self._history = packed, rule.history
        self._kept: list[np.ndarray] = []  # made with the first copy: many runs need none
        self._lock = Lock()  # instances' threads may update buckets at once
        self._parts: list[slice] = []
        self._has_all = False

    def begin(self) -> None:
        """Begin an iteration: the last one's updates stay."""
        self._parts, self._has_all = [], False

    def keep_all(self) -> None:
        """Copy everything: users' functions follow, which may write anywhere."""
        self.keep(slice(None))
        self._has_all = True

    def keep(self, part: slice) -> None:
        """Copy a bucket, whose update follows. Called by the thread that updates it."""
        if self._has_all:
            return
        with self._lock:
            self._kept = self._kept or [np.empty_like(values) for values in (self._packed.flat, *self._history)]
        for kept, values in zip(self._kept, (self._packed.data, *self._history), strict=True):
            np.copyto(kept[part], values[part])
        self._parts.append(part)

    def undo(self) -> None:
        """Put back what this iteration's updates have replaced."""
        for part in self._parts:
            for kept, values in zip(self._kept, (self._packed.data, *self._history), strict=True):
                np.copyto(values[part], kept[part])
        self._packed.changed(slice(None))
        self.begin()
