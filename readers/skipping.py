"""SkippingBatches: replaces each bad record by the next good one in the global order.

A record is bad where it is damaged, missing or of another shape, or where no layer accepts its label. The replacement
depends on the order of the records alone: a batch is the same on any number of ranks and after any resume.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from readers.batch_queue import Batch, BatchMemory, allocate
from readers.errors import RecordError
from readers.shard import Shard

LEAST = 1000  # records that are counted as read from the start, so that the first bad record does not end a run
T = TypeVar("T")


def allowed(fraction: float, read: int) -> int:
    """Return how many of `read` records may be bad: that fraction of them, or of LEAST where that is more."""
    return int(fraction * max(read, LEAST) + 1e-9)  # so that 0.29 * 100 is 29


@dataclass(frozen=True)
class Labels:
    """The labels accepted in a batch's array number `array`: integers from 0 to classes - 1, and `ignore`."""

    array: int
    classes: int
    ignore: int | None = None

    def accepted(self, values: np.ndarray) -> np.ndarray:
        """Return for each row of values (n x ...) whether all its labels are accepted (n, bool)."""
        good: np.ndarray = (values >= 0) & (values < self.classes) & (values == np.floor(values))
        if self.ignore is not None:
            good |= values == self.ignore
        return np.asarray(good.reshape(len(values), -1).all(axis=1))

    def refusal(self, values: np.ndarray) -> str:
        """Return a message about the first label of values (...) that is not accepted, "" if all are."""
        flat = np.reshape(values, -1)
        good = self.accepted(flat)
        return "" if good.all() else f"label {flat[np.argmin(good)]:g} is outside the classes 0 to {self.classes - 1}"


class BatchFiller(Protocol):
    """Fills batches with the samples of a shard. Several reader threads may call it at the same time."""

    shard: Shard

    @property
    def shapes(self) -> Sequence[tuple[int, ...]]:
        """The shape of a row of each array of a batch."""

    def allocate(self, count: int, memory: BatchMemory | None = None) -> list[Batch]:
        """Return `count` batches of the shard's rows, in `memory` if given."""

    def fill(self, number: int, batch: Batch) -> None:
        """Read the shard's part of global batch `number`."""

    def describe(self, key: Any) -> str:
        """Return a record's name for messages."""


class RecordFiller(BatchFiller, Protocol):
    """Fills batches with given records too, as BatchReader and HDF5Batches do."""

    def fill_with(self, epochs: np.ndarray, indices: np.ndarray, batch: Batch) -> None:
        """Read the records `indices` (n) of `epochs` (n). Raises RecordError for a bad record."""


class SkippingBatches:
    """Fills batches as `batches` does, with good records in place of bad ones; `batch.bad` has a message for each.

    A record is bad where `batches` raises RecordError for it, or where `labels` do not accept its label. Its sample
    gets the record and the crop of the next sample with a good record, on whichever rank. The numbers of bad records
    are stored. Several threads may fill batches at the same time. Raises RecordError for more bad records in a row than
    `fraction` allows.
    """

    def __init__(self, batches: RecordFiller, fraction: float, labels: Sequence[Labels] = ()):
        self.batches, self.labels = batches, labels
        self._fraction = fraction
        self._limit = allowed(fraction, batches.shard.records)
        self._bad: dict[int, str] = {}

    @property
    def shard(self) -> Shard:
        """The samples that this rank reads."""
        return self.batches.shard

    @shard.setter
    def shard(self, shard: Shard) -> None:
        self.batches.shard = shard

    @property
    def shapes(self) -> Sequence[tuple[int, ...]]:
        """The shape of a row of each array."""
        return self.batches.shapes

    def allocate(self, count: int, memory: BatchMemory | None = None) -> list[Batch]:
        """Return `count` batches of this rank's rows, in `memory` if given."""
        return self.batches.allocate(count, memory)

    def describe(self, key: Any) -> str:
        """Return a record's name for messages."""
        return self.batches.describe(key)

    def fill(self, number: int, batch: Batch) -> None:
        """Read this rank's part of global batch `number`; where that fails, find the bad records and read it again."""
        while True:
            epochs, records, batch.bad = self._choose(number)
            failure = self._fill(epochs, records, batch)
            if failure is None:
                return
            self._find_bad(epochs, records, failure)

    def _choose(self, number: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """Return epochs and records with known bad ones replaced, and the messages about these."""
        epochs, records = self.batches.shard.places(number)
        if not self._bad or self._bad.keys().isdisjoint(records.tolist()):
            return epochs, records, []
        epochs, records, met = epochs.copy(), records.copy(), []
        for row, sample in enumerate(self.batches.shard.samples(number)):
            met += self._replace(sample, row, epochs, records)
        return epochs, records, met

    def _replace(self, sample: int, row: int, epochs: np.ndarray, records: np.ndarray) -> list[str]:
        """Set a row to the next sample without a known bad record; return the messages about the records before it."""
        met: list[str] = []
        while (record := int(records[row])) in self._bad:
            met.append(self._bad[record])
            if len(met) > self._limit:
                raise RecordError(too_many(self._fraction, len(met), met[-1]))
            epochs[row : row + 1], records[row : row + 1] = self.batches.shard.at(np.array([sample + len(met)]))
        return met

    def _fill(self, epochs: np.ndarray, records: np.ndarray, batch: Batch) -> str | None:
        """Fill a batch; return a message about a bad record in it, None if there is none."""
        try:
            self.batches.fill_with(epochs, records, batch)
        except RecordError as error:
            return str(error)
        return next((said for labels in self.labels if (said := self._complaint(labels, batch))), None)

    def _complaint(self, labels: Labels, batch: Batch) -> str:
        """Return a message about the first row whose label is not accepted, "" if there is none."""
        values = batch.arrays[labels.array]
        row = int(np.argmin(labels.accepted(values)))  # the first row refused, or row 0
        if not (said := labels.refusal(values[row])):
            return ""
        return f"{self.describe(batch.keys[row])}: {said}"

    def _find_bad(self, epochs: np.ndarray, records: np.ndarray, failure: str) -> None:
        """Read each record alone and store the bad ones. Raises RecordError where none is bad when read alone."""
        [alone] = allocate(1, 1, self.shapes)
        for row, record in enumerate(records.tolist()):
            said = None if record in self._bad else self._fill(epochs[row : row + 1], records[row : row + 1], alone)
            if said is not None:
                self._bad[record] = said
        if self._bad.keys().isdisjoint(records.tolist()):
            raise RecordError(f"{failure}, but could be read when tried again: is the file being written?")


def first_good(make: Callable[[int], T], records: int, fraction: float) -> T:
    """Return make(record) for the first record for which it does not raise RecordError.

    Raises the error of make(0) where more records fail than `fraction` allows before a batch is read.
    """
    first: RecordError | None = None
    for record in range(min(records, allowed(fraction, 0) + 1)):
        try:
            return make(record)
        except RecordError as error:
            first = first or error
    assert first is not None
    raise first


def too_many(fraction: float, count: int, last: str) -> str:
    """Return the message for too many bad records in a row, of which `last` is the last one's."""
    return f"{last}; it is the last of {count} bad records in a row: repair them, or allow more than {fraction:g} bad"
