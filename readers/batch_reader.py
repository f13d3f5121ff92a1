"""BatchReader: fills a rank's batches with images of a source, by its shard and a transform."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from readers.batch_queue import Batch, BatchMemory, Raw, allocate
from readers.datum import shape_text
from readers.errors import RecordError
from readers.layout import DatumLayout
from readers.planes import WHOLE, planes
from readers.shard import Shard
from readers.transform import Transform

GROUP = 1 << 20  # pixels of raw images that are transformed at once: they stay in the cache


class Source(Protocol):
    """Labelled images by index: a database or a list. One thread at a time reads; several threads may decode."""

    def __len__(self) -> int: ...

    def read(self, indices: Iterable[int]) -> list[tuple[Any, Any]]:
        """Return the (key, value) of each index."""

    def decode(self, value: Any, color: bool | None = None) -> tuple[np.ndarray, int]:
        """Return a value's image (C x H x W) and label. Raises RecordError for a damaged one."""

    def describe(self, key: Any) -> str:
        """Return a record's name for messages."""


class BatchReader:
    """Fills batches with this rank's records of `reader`, decoded and transformed.

    `shape` (C x h x w) is the shape of the transformed record `first`. In batches of one image each image keeps its
    own shape. Raises RecordError if the first record can't be decoded or does not fit the transform.
    """

    def __init__(self, reader: Source, shard: Shard, transform: Transform, first: int = 0):
        self.reader, self.shard, self.transform = reader, shard, transform
        [(key, value)] = reader.read([first])
        image, _ = self._decode(key, value)
        self._first_shape, self._dtype = image.shape, image.dtype
        self._group = max(1, GROUP // math.prod(self._first_shape))  # records
        self._layout = DatumLayout.of(value) if isinstance(value, bytes) else None
        self.shape = self._output_shape(key, self._first_shape)

    @property
    def records(self) -> int:
        """The number of records in the source."""
        return self.shard.records

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of an image and of a label."""
        return [self.shape, ()]

    def allocate(self, count: int, memory: BatchMemory | None = None) -> list[Batch]:
        """Return `count` batches of this rank's rows, in `memory` if given.

        A device that transforms images gets them as read, unless transformed images (small crops) have fewer bytes.
        """
        batches = allocate(count, self.shard.rows, self.shapes, memory)
        if memory is not None and memory.transforms:
            for batch in batches:
                batch.raw = self._allocate_raw(batch.data, memory)
        return batches

    def fill(self, number: int, batch: Batch) -> None:
        """Read this rank's part of global batch `number`; see `fill_with`."""
        self.fill_with(*self.shard.places(number), batch)

    def fill_with(self, epochs: np.ndarray, indices: np.ndarray, batch: Batch) -> None:
        """Read the records `indices` (n) of `epochs` (n).

        Raises RecordError for a record that can't be decoded, or whose shape differs from the first one's.
        """
        items = self._read(indices)
        batch.keys = [key for key, _ in items]
        batch.is_raw = batch.raw is not None and self._fill_raw(items, epochs, indices, batch.raw, batch.label)
        if batch.is_raw:
            return
        labels = self._layout.labels([value for _, value in items]) if self._layout else None
        if labels is None:
            transforming = self._fill_one_by_one(items, epochs, indices, batch)
        else:
            batch.label[:] = labels
            transforming = self._fill_alike(items, epochs, indices, batch)
        batch.read_until = perf_counter() - transforming

    def _fill_alike(
        self, items: Sequence[tuple[Any, Any]], epochs: np.ndarray, indices: np.ndarray, batch: Batch
    ) -> float:
        """Write the images of records that all have the layout; return the seconds that transforming took."""
        assert self._layout is not None
        self._fit(batch, self._first_shape)
        seconds = 0.0
        for start in range(0, len(items), self._group):
            part = slice(start, start + self._group)
            images = self._layout.images([value for _, value in items[part]])
            begin = perf_counter()
            self.transform.apply(images, epochs[part], indices[part], batch.data[part])
            seconds += perf_counter() - begin
        return seconds

    def _fill_one_by_one(
        self, items: Sequence[tuple[Any, Any]], epochs: np.ndarray, indices: np.ndarray, batch: Batch
    ) -> float:
        """Decode and transform records one by one; return the seconds that transforming took.

        An image is released before the next is decoded: the decoder then reuses its memory, which is in the cache.
        """
        seconds = 0.0
        for row, ((key, value), words) in enumerate(zip(items, self.transform.words(epochs, indices), strict=True)):
            image, batch.label[row] = self._decode(key, value)
            begin = perf_counter()
            self._fit(batch, image.shape, key)
            self.transform.apply_one(image, words, batch.data[row])
            del image
            seconds += perf_counter() - begin
        return seconds

    def describe(self, key: Any) -> str:
        """Return a record's name for messages."""
        return self.reader.describe(key)

    def _allocate_raw(self, data: np.ndarray, memory: BatchMemory) -> Raw | None:
        """Return arrays for images as read, in the memory of `data`; None where they don't fit."""
        rows = len(data)
        nbytes = rows * math.prod(self._first_shape) * self._dtype.itemsize
        if nbytes > data.nbytes:
            return None
        images = data.reshape(-1).view(np.uint8)[:nbytes].view(self._dtype).reshape(rows, *self._first_shape)
        return Raw(images, memory.pinned(12 * rows).view(np.int32).reshape(rows, 3), self.transform)

    def _fill_raw(
        self, items: Sequence[tuple[Any, Any]], epochs: np.ndarray, indices: np.ndarray, raw: Raw, label: np.ndarray
    ) -> bool:
        """Write images as read, labels and crops; return False where an image has another shape or type."""
        values = [value for _, value in items]
        if self._layout is not None and (labels := self._layout.labels(values)) is not None:
            label[:] = labels
            self._layout.store(values, raw.images)
        else:
            for row, (key, value) in enumerate(items):
                image, label[row] = self._decode(key, value)
                if image.shape != self._first_shape or image.dtype != self._dtype:
                    return False
                raw.images[row] = planes(image, WHOLE)
        raw.places[:] = self.transform.places(self._first_shape[1:], epochs, indices).T
        return True

    def _read(self, indices: np.ndarray) -> Sequence[tuple[Any, Any]]:
        """Return the (key, value) of each index, read in ascending order: databases step from record to record."""
        if self.shard.order is None:
            return self.reader.read(indices.tolist())
        ascending, places = np.unique(indices, return_inverse=True)
        items = self.reader.read(ascending.tolist())
        return [items[place] for place in places.tolist()]

    def _decode(self, key: Any, value: Any) -> tuple[np.ndarray, int]:
        try:
            return self.reader.decode(value, self.transform.color)
        except RecordError as error:
            raise RecordError(f"{self.describe(key)}: {error}") from None

    def _output_shape(self, key: Any, shape: tuple[int, ...], hint: str = "") -> tuple[int, ...]:
        try:
            return self.transform.output_shape(shape)
        except RecordError as error:
            raise RecordError(f"{self.describe(key)} {error}{hint}") from None

    def _fit(self, batch: Batch, shape: tuple[int, ...], key: Any = None) -> None:
        """Raise RecordError where the transformed shape is not the first one's; a batch of one takes its image's."""
        if self.shard.batch == 1:
            shape = self._output_shape(batch.keys[0], shape)
            if batch.data.shape[1:] != shape:
                batch.arrays[0] = np.zeros((1, *shape), np.float32)
        elif shape != self._first_shape:
            self._check(key, shape)

    def _check(self, key: Any, shape: tuple[int, ...]) -> None:
        first = f"the first record is {shape_text(self._first_shape)}"
        if self._output_shape(key, shape, f"; {first}") != self.shape:
            hint = "" if self.transform.crop_size else "; crop_size allows sizes that differ"
            raise RecordError(f"{self.describe(key)} is {shape_text(shape)}, but {first}{hint}")
