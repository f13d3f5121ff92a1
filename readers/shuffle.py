"""Random orders of records, another one in each epoch, the same for any number of ranks, kept nowhere.

An order is called with the epochs and places (n) of samples and returns which records stand there (n).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from readers.keyed import key, permute

RECORDS, FILES, ROWS = range(3)  # what is put in order


@dataclass(frozen=True)
class Shuffle:
    """All `records` in random order."""

    seed: int
    records: int

    def __call__(self, epochs: np.ndarray, places: np.ndarray) -> np.ndarray:
        return permute(key(self.seed, RECORDS, epochs), places, self.records)


class FileShuffle:
    """Files of so many `rows` in random order, and the rows of each: a file is done with before the next begins."""

    def __init__(self, seed: int, rows: Sequence[int]):
        self.seed = seed
        self._rows = np.asarray(rows, np.int64)
        self._starts = np.cumsum(self._rows) - self._rows

    def __call__(self, epochs: np.ndarray, places: np.ndarray) -> np.ndarray:
        records = np.empty(len(places), np.int64)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            records[here] = self._epoch(epoch, places[here])
        return records

    def _epoch(self, epoch: np.integer, places: np.ndarray) -> np.ndarray:
        files = np.argsort(key(self.seed, FILES, epoch, np.arange(len(self._rows))), kind="stable")
        ends = np.cumsum(self._rows[files])
        slots = np.searchsorted(ends, places, side="right")
        file = files[slots]
        rows = permute(key(self.seed, ROWS, epoch, file), places - ends[slots] + self._rows[file], self._rows[file])
        return self._starts[file] + rows
