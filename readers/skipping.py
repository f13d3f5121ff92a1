"""Bad records passed over: each is replaced by the next good one in the global order.

A record that is damaged, missing, of another shape, or whose label no layer takes. What replaces it depends on the
order of the records alone, so a batch is the same on any number of ranks and after any stop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from readers.batch_queue import Batch, Memory, allocate
from readers.errors import RecordError
from readers.shard import Shard

LEAST = 1000  # records: who has read fewer counts as having read these, so that a run's first bad record doesn't end it
T = TypeVar("T")


def allowed(fraction: float, read: int) -> int:
    """Return how many of so many records that were read may be bad: that fraction, but of LEAST at the least."""
    return int(fraction * max(read, LEAST) + 1e-9)  # of 0.29 * 100 there are 29


@dataclass(frozen=True)
class Labels:
    """The labels that are taken of a batch's array: whole numbers from 0 to classes - 1, and `ignore`."""

    array: int
    classes: int
    ignore: int | None = None

    def taken(self, values: np.ndarray) -> np.ndarray:
        """Return which rows of values (n x ...) have no others (n)."""
        good = (values >= 0) & (values < self.classes) & (values == np.floor(values))
        if self.ignore is not None:
            good |= values == self.ignore
        return good.reshape(len(values), -1).all(axis=1)

    def refusal(self, values: np.ndarray) -> str:
        """Return what is wrong with values (...), "" if all are taken."""
        flat = np.reshape(values, -1)
        taken = self.taken(flat)
        return "" if taken.all() else f"label {flat[np.argmin(taken)]:g} is outside the classes 0 to {self.classes - 1}"


class Fills(Protocol):
    """What fills batches with records of a shard: readers.BatchReader, readers.HDF5Batches."""

    shard: Shard

    @property
    def shapes(self) -> Sequence[tuple[int, ...]]: ...

    def allocate(self, count: int, memory: Memory | None = None) -> list[Batch]: ...

    def fill(self, number: int, batch: Batch) -> None: ...

    def fill_with(self, epochs: np.ndarray, indices: np.ndarray, batch: Batch) -> None: ...

    def describe(self, key: Any) -> str: ...


class SkippingBatches:
    """Fills batches as `batches` does, with good records in place of bad ones; `batch.bad` tells of each bad one met.

    A record is bad for which `batches` raises RecordError, or whose label is none of `labels`. The sample takes the
    record, and the crop, of the next sample that has a good one, whichever rank's that is. Records known to be bad are
    kept by number, their good fellows are not. Several threads may fill batches at once. Raises RecordError where more
    follow each other than `fraction` allows.
    """

    def __init__(self, batches: Fills, fraction: float, labels: Sequence[Labels] = ()):
        self.batches, self.labels = batches, labels
        self._fraction = fraction
        self._limit = allowed(fraction, batches.shard.records)
        self._bad: dict[int, str] = {}

    @property
    def shard(self) -> Shard:
        """Which samples are read."""
        return self.batches.shard

    @shard.setter
    def shard(self, shard: Shard) -> None:
        self.batches.shard = shard

    @property
    def shapes(self) -> Sequence[tuple[int, ...]]:
        """The shape of a row of each array."""
        return self.batches.shapes

    def allocate(self, count: int, memory: Memory | None = None) -> list[Batch]:
        """Return `count` empty batches of this rank's rows, in `memory` where it is given."""
        return self.batches.allocate(count, memory)

    def describe(self, key: Any) -> str:
        """Return what messages call a record."""
        return self.batches.describe(key)

    def fill(self, number: int, batch: Batch) -> None:
        """Read this rank's part of global batch `number`: at once, and only where that fails one by one as well."""
        while True:
            epochs, records, batch.bad = self._choose(number)
            failure = self._fill(epochs, records, batch)
            if failure is None:
                return
            self._find_bad(epochs, records, failure)

    def _choose(self, number: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """Return epochs and records without those known to be bad, and what is wrong with each of these."""
        epochs, records = self.batches.shard.places(number)
        if not self._bad or self._bad.keys().isdisjoint(records.tolist()):
            return epochs, records, []
        epochs, records, met = epochs.copy(), records.copy(), []
        for row, sample in enumerate(self.batches.shard.samples(number)):
            met += self._pass_over(sample, row, epochs, records)
        return epochs, records, met

    def _pass_over(self, sample: int, row: int, epochs: np.ndarray, records: np.ndarray) -> list[str]:
        """Let a row be of the next sample whose record isn't known to be bad; return what is wrong with the others."""
        met: list[str] = []
        while (record := int(records[row])) in self._bad:
            met.append(self._bad[record])
            if len(met) > self._limit:
                raise RecordError(too_many(self._fraction, len(met), met[-1]))
            epochs[row : row + 1], records[row : row + 1] = self.batches.shard.at(np.array([sample + len(met)]))
        return met

    def _fill(self, epochs: np.ndarray, records: np.ndarray, batch: Batch) -> str | None:
        """Fill a batch; return what is wrong with one of its records, None if nothing is."""
        try:
            self.batches.fill_with(epochs, records, batch)
        except RecordError as error:
            return str(error)
        return next((said for labels in self.labels if (said := self._complaint(labels, batch))), None)

    def _complaint(self, labels: Labels, batch: Batch) -> str:
        """Return what is wrong with the first row whose label isn't taken, "" if all are."""
        values = batch.arrays[labels.array]
        row = int(np.argmin(labels.taken(values)))  # the first one refused, or row 0
        if not (said := labels.refusal(values[row])):
            return ""
        return f"{self.describe(batch.keys[row])}: {said}"

    def _find_bad(self, epochs: np.ndarray, records: np.ndarray, failure: str) -> None:
        """Take note of which records are bad. Raise RecordError if none is when looked at alone."""
        [alone] = allocate(1, 1, self.shapes)
        for row, record in enumerate(records.tolist()):
            said = None if record in self._bad else self._fill(epochs[row : row + 1], records[row : row + 1], alone)
            if said is not None:
                self._bad[record] = said
        if self._bad.keys().isdisjoint(records.tolist()):
            raise RecordError(f"{failure}, but could be read when tried again: is the file being written?")


def first_good(make: Callable[[int], T], records: int, fraction: float) -> T:
    """Return make(record) of the first record for which it doesn't raise RecordError, before a batch is read.

    Raises make(0)'s where that are more records than `fraction` allows.
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
    """Return what is said where so many bad records follow each other."""
    return f"{last}; it is the last of {count} bad records in a row: mend them, or let more than {fraction:g} be bad"
