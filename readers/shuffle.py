"""Random orders of records: computed, not stored, different in each epoch, equal for any number of ranks.

An order is called with the epochs and places (n) of samples, and returns their records (n).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from readers.errors import ReaderError
from readers.keyed import bounded, key, permute
from readers.shard import Order

NONE, FULL, BLOCK = "none", "full", "block:"
RECORDS, FILES, ROWS, BLOCKS, LAST, INSIDE = range(6)  # keys of the permutations


@dataclass(frozen=True)
class Shuffle:
    """All `records` in random order."""

    seed: int
    records: int

    def __call__(self, epochs: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return the records (n, int64) at these places (n) of these epochs (n)."""
        return permute(key(self.seed, RECORDS, epochs), places, self.records)


@dataclass(frozen=True)
class BlockShuffle:
    """Blocks of `size` neighbouring `records` in random order, and the records within each: reads stay local.

    A shorter last block has a random place among the others.
    """

    seed: int
    records: int
    size: int

    def __call__(self, epochs: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return the records (n, int64) at these places (n) of these epochs (n)."""
        full, rest = divmod(self.records, self.size)
        slot = bounded(key(self.seed, LAST, epochs), full + 1).astype(np.int64)  # the place of the shorter block
        start = slot * self.size
        in_rest = (places >= start) & (places < start + rest)
        slots, inside = np.divmod(np.where(places < start, places, places - rest), self.size)
        slots, inside = np.where(in_rest, 0, slots), np.where(in_rest, places - start, inside)
        blocks = np.where(in_rest, full, permute(key(self.seed, BLOCKS, epochs), slots, max(full, 1)))
        counts = np.where(in_rest, rest, self.size)
        starts: np.ndarray = blocks * self.size
        return starts + permute(key(self.seed, INSIDE, epochs, blocks), inside, counts)


class FileShuffle:
    """Files in random order, and the rows within each; `rows` has the number of rows of each file.

    All rows of a file come before those of the next file.
    """

    def __init__(self, seed: int, rows: Sequence[int]):
        self.seed = seed
        self._rows = np.asarray(rows, np.int64)
        self._starts = np.cumsum(self._rows) - self._rows

    def __call__(self, epochs: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return the rows (n, int64) at these places (n) of these epochs (n)."""
        known, which = np.unique(epochs, return_inverse=True)
        files = np.argsort(key(self.seed, FILES, known[:, None], np.arange(len(self._rows))), kind="stable").ravel()
        ends = np.cumsum(self._rows[files])  # of all files, epoch after epoch
        places = places + which * self._rows.sum()
        slots = np.searchsorted(ends, places, side="right")
        file = files[slots]
        rows = permute(key(self.seed, ROWS, epochs, file), places - ends[slots] + self._rows[file], self._rows[file])
        starts: np.ndarray = self._starts[file]
        return starts + rows


def block_size(shuffle: str) -> int:
    """Return N of "block:N", 0 for "none" and "full". Raises ReaderError for another name."""
    if shuffle in (NONE, FULL):
        return 0
    size = shuffle.removeprefix(BLOCK)
    if size == shuffle or not (size.isascii() and size.isdecimal() and 0 < int(size) < 2**31):
        raise ReaderError(f"unknown shuffle '{shuffle}'; known: none, full, block:N with N records, 1 or more")
    return int(size)


def order(shuffle: str, seed: int, records: int) -> Order | None:
    """Return the order "full" or "block:N" of `records`, None for "none". Raises ReaderError for another name."""
    if size := block_size(shuffle):
        return BlockShuffle(seed, records, size)
    return Shuffle(seed, records) if shuffle == FULL else None
