"""Who reads which record: a pure function of the batch number, the rank and their number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from readers.errors import ReaderError


def share(n: int, rank: int, size: int) -> tuple[int, int]:
    """Return [start, stop) of a rank's part of n things; the parts are contiguous and differ by one at most."""
    return rank * n // size, (rank + 1) * n // size


AHEAD = 4096  # samples that are put in order at a time: for one batch numpy's calls cost more than the numbers
Order = Callable[[np.ndarray, np.ndarray], np.ndarray]  # which records stand at these epochs and places; see shuffle.py


@dataclass(frozen=True)
class Shard:
    """One rank's part of an endless sequence of samples, cut into global batches.

    Sample s is record s modulo `records`, in its epoch s // records, or the one that stands there in `order`. Global
    batch t holds `batch` samples from first + t * batch on, whichever the number of ranks; this rank reads
    [start, stop) of each.
    """

    records: int
    batch: int
    start: int
    stop: int
    first: int = 0
    order: Order | None = None

    def __post_init__(self) -> None:
        if self.records < 1:
            raise ReaderError(f"expected one record at least, got {self.records}")
        if self.first < 0:
            raise ReaderError(f"expected a first sample of 0 or more, got {self.first}")
        if not 0 <= self.start < self.stop <= self.batch:
            raise ReaderError(f"samples {self.start} to {self.stop} are no part of a batch of {self.batch}")

    @classmethod
    def whole(cls, records: int, batch: int, first: int = 0) -> Shard:
        """Return the shard of one rank that reads everything."""
        return cls(records, batch, 0, batch, first)

    @classmethod
    def strong(cls, records: int, batch: int, rank: int, size: int, first: int = 0) -> Shard:
        """Divide `batch` over the ranks. Raise ReaderError if a rank would get nothing."""
        if batch < size:
            raise ReaderError(f"a batch of {batch} can't be divided over {size} ranks: use {batch} ranks at most")
        return cls(records, batch, *share(batch, rank, size), first)

    @classmethod
    def weak(cls, records: int, batch: int, rank: int, size: int, first: int = 0) -> Shard:
        """Give each rank `batch` samples of a global batch that is `size` times as large."""
        return cls(records, batch * size, rank * batch, (rank + 1) * batch, first)

    @property
    def rows(self) -> int:
        """Samples of each batch that this rank reads."""
        return self.stop - self.start

    def position(self, t: int) -> int:
        """Return the global number of samples consumed before batch t: what a resumed run takes as `first`."""
        return self.first + t * self.batch

    def samples(self, t: int) -> range:
        """Return the global sample numbers that this rank reads for batch t."""
        return range(self.position(t) + self.start, self.position(t) + self.stop)

    def places(self, t: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the epochs and the records, by their place in key order, that this rank reads for batch t (n each)."""
        if self.order is None:
            return self.at(np.arange(self.rows) + self.samples(t).start)
        count = max(1, AHEAD // self.rows)
        epochs, records = _ahead(self, t // count, count)
        return epochs[t % count], records[t % count]

    def at(self, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the epochs and the records of global samples of these numbers."""
        epochs, places = np.divmod(samples, self.records)
        return epochs, places if self.order is None else self.order(epochs, places)


@lru_cache(maxsize=16)
def _ahead(shard: Shard, chunk: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the epochs and the records that a shard reads for batches chunk * count on (count x n each, read-only)."""
    starts = shard.position(0) + shard.start + shard.batch * np.arange(chunk * count, (chunk + 1) * count)
    found = shard.at((starts[:, None] + np.arange(shard.rows)).ravel())
    for array in found:
        array.flags.writeable = False
    epochs, records = (array.reshape(count, shard.rows) for array in found)
    return epochs, records
