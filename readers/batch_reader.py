"""A database, a shard of it and a transform: what fills a rank's batches."""

from __future__ import annotations

import numpy as np

from readers.batch_queue import Batch
from readers.datum import decode, shape_text
from readers.errors import RecordError
from readers.lmdb_reader import LMDBReader
from readers.shard import Shard
from readers.transform import Transform


class BatchReader:
    """Fills batches with this rank's records of `reader`, decoded and transformed.

    `shape` (C x h x w) is that of the first record once transformed. Raises RecordError if that record can't
    be decoded or does not fit the transform.
    """

    def __init__(self, reader: LMDBReader, shard: Shard, transform: Transform):
        self.reader, self.shard, self.transform = reader, shard, transform
        [(key, value)] = reader.read([0])
        self._first_shape = self._decode(key, value)[0].shape
        try:
            self.shape = transform.output_shape(self._first_shape)
        except RecordError as error:
            raise RecordError(f"{self.describe(key)} {error}") from None

    @property
    def records(self) -> int:
        """Number of records in the database."""
        return self.shard.records

    def allocate(self, count: int) -> list[Batch]:
        """Return `count` empty batches of this rank's rows."""
        rows = self.shard.rows
        return [Batch(np.zeros((rows, *self.shape), np.float32), np.zeros(rows, np.float32)) for _ in range(count)]

    def fill(self, number: int, batch: Batch) -> None:
        """Read this rank's part of global batch `number`.

        Raises RecordError for a record that can't be decoded or whose shape is not the first one's.
        """
        samples = self.shard.samples(number)
        epochs, indices = np.divmod(np.arange(samples.start, samples.stop), self.records)
        items = self.reader.read(indices.tolist())
        decoded = [self._fitting(key, value) for key, value in items]
        self.transform.apply([image for image, _ in decoded], epochs, indices, batch.data)
        batch.label[:] = [label for _, label in decoded]
        batch.keys = [key for key, _ in items]

    def describe(self, key: bytes) -> str:
        """Return what messages call a record: its database and key."""
        return self.reader.describe(key)

    def _decode(self, key: bytes, value: bytes) -> tuple[np.ndarray, int]:
        try:
            return decode(value, self.transform.color)
        except RecordError as error:
            raise RecordError(f"{self.describe(key)}: {error}") from None

    def _fitting(self, key: bytes, value: bytes) -> tuple[np.ndarray, int]:
        """Decode a record; one that comes out with another shape than the first is refused."""
        image, label = self._decode(key, value)
        if image.shape != self._first_shape:
            self._check(key, image.shape)
        return image, label

    def _check(self, key: bytes, shape: tuple[int, ...]) -> None:
        first = f"the first record is {shape_text(self._first_shape)}"
        try:
            fits = self.transform.output_shape(shape) == self.shape
        except RecordError as error:
            raise RecordError(f"{self.describe(key)} {error}; {first}") from None
        if not fits:
            hint = "" if self.transform.crop_size else "; crop_size allows sizes that differ"
            raise RecordError(f"{self.describe(key)} is {shape_text(shape)}, but {first}{hint}")
