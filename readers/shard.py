"""Shard: the records that a rank reads, a pure function of the batch number, the rank and the number of ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from readers.errors import ReaderError


def share(n: int, rank: int, size: int) -> tuple[int, int]:
    """Return [start, stop) of a rank's part of n elements. Parts are contiguous; their sizes differ by one at most."""
    return rank * n // size, (rank + 1) * n // size


ORDERED = 4096  # samples that are ordered at once: for one batch numpy's calls take longer than its arithmetic
Order = Callable[[np.ndarray, np.ndarray], np.ndarray]  # records by epochs and places; see shuffle.py


@dataclass(frozen=True)
class Shard:
    """One rank's part of an endless sequence of samples, cut into global batches.

    Sample s belongs to epoch s // records, at place s % records. Its record is that place, or the record at that place
    in `order`. Global batch t has `batch` samples from first + t * batch on, for any number of ranks; this rank reads
    rows [start, stop) of each batch.
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
        """Return the shard of a rank that reads whole batches."""
        return cls(records, batch, 0, batch, first)

    @classmethod
    def strong(cls, records: int, batch: int, rank: int, size: int, first: int = 0) -> Shard:
        """Divide `batch` over the ranks (strong scaling). Raises ReaderError for more ranks than samples."""
        if batch < size:
            raise ReaderError(f"a batch of {batch} can't be divided over {size} ranks: use {batch} ranks at most")
        return cls(records, batch, *share(batch, rank, size), first)

    @classmethod
    def weak(cls, records: int, batch: int, rank: int, size: int, first: int = 0) -> Shard:
        """Return `batch` samples for each rank, of a global batch of size * batch (weak scaling)."""
        return cls(records, batch * size, rank * batch, (rank + 1) * batch, first)

    @property
    def rows(self) -> int:
        """The number of samples of each batch that this rank reads."""
        return self.stop - self.start

    def position(self, t: int) -> int:
        """Return the global number of samples before batch t: `first` of a run that resumes there."""
        return self.first + t * self.batch

    def samples(self, t: int) -> range:
        """Return the global sample numbers that this rank reads for batch t."""
        return range(self.position(t) + self.start, self.position(t) + self.stop)

    def places(self, t: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the epochs and the records, by index in key order, that this rank reads for batch t (n each)."""
        if self.order is None:
            return self.at(np.arange(self.rows) + self.samples(t).start)
        count = max(1, ORDERED // self.rows)
        epochs, records = _ordered(self, t // count, count)
        return epochs[t % count], records[t % count]

    def at(self, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the epochs and the records of these global samples (n each)."""
        epochs, places = np.divmod(samples, self.records)
        return epochs, places if self.order is None else self.order(epochs, places)


@lru_cache(maxsize=16)
def _ordered(shard: Shard, chunk: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a shard's epochs and records for `count` batches from chunk * count on (count x n each, read-only)."""
    starts = shard.position(0) + shard.start + shard.batch * np.arange(chunk * count, (chunk + 1) * count)
    found = shard.at((starts[:, None] + np.arange(shard.rows)).ravel())
    for array in found:
        array.flags.writeable = False
    epochs, records = (array.reshape(count, shard.rows) for array in found)
    return epochs, records
