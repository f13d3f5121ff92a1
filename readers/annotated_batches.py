"""AnnotatedBatches: fills a rank's batches with annotated pictures and their boxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from readers.annotated import BOX, Annotated, AnnotatedSource
from readers.batch_queue import Batch, BatchMemory, allocate
from readers.box_sampling import BoxChanges, mirrored
from readers.datum import shape_text
from readers.errors import RecordError
from readers.image import resize
from readers.keyed import key
from readers.shard import Shard
from readers.transform import MIRROR, Transform

MOST = 256  # boxes of a picture
CHANGES = 3  # key of a sample's random numbers, beside the transform's


class AnnotatedBatches:
    """Fills batches with this rank's records: pictures (C x h x w) and boxes (MOST x 8), rows of -1 behind the last.

    A row has the picture's place in the batch of this rank, then label, instance, xmin, ymin, xmax, ymax, difficult.
    Pictures are changed, resized to `size` (height, width) if given, mirrored, and transformed. What is drawn depends
    on the seed, the epoch and the record alone. Raises RecordError for a damaged picture, a wrong box, or another
    shape.
    """

    def __init__(
        self,
        source: AnnotatedSource,
        shard: Shard,
        transform: Transform,
        changes: BoxChanges,
        size: tuple[int, int] | None,
        first: int = 0,
    ):
        self.source, self.shard, self.transform, self.changes, self.size = source, shard, transform, changes, size
        [(name, value)] = source.read([first])
        self._first_shape = self._resized(self._decoded(name, value).image).shape
        self.shape = self.transform.output_shape(self._first_shape)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of a picture and of its boxes."""
        return [self.shape, (MOST, BOX + 1)]

    def allocate(self, count: int, memory: BatchMemory | None = None) -> list[Batch]:
        """Return `count` batches of this rank's rows, in `memory` if given."""
        return allocate(count, self.shard.rows, self.shapes, memory)

    def fill(self, number: int, batch: Batch) -> None:
        """Read this rank's part of global batch `number`."""
        self.fill_with(*self.shard.places(number), batch)

    def fill_with(self, epochs: np.ndarray, indices: np.ndarray, batch: Batch) -> None:
        """Read the records `indices` (n) of `epochs` (n)."""
        items = self.source.read(indices.tolist())
        batch.keys = [name for name, _ in items]
        batch.label[...] = -1
        drawn = zip(items, self.transform.words(epochs, indices), self._seeds(epochs, indices), strict=True)
        for row, ((name, value), words, seed) in enumerate(drawn):
            self._fill_row(self._decoded(name, value), name, words, seed, batch, row)

    def _seeds(self, epochs: np.ndarray, indices: np.ndarray) -> list[int]:
        return [int(word) for word in key(self.transform.seed, CHANGES, epochs, indices)]

    def _fill_row(self, record: Annotated, name: Any, words: Sequence[int], seed: int, batch: Batch, row: int) -> None:
        image, boxes = self.changes.apply(record, np.random.Generator(np.random.Philox(key=seed)))
        image = self._resized(image)
        if image.shape != self._first_shape:
            first = f"the first one is {shape_text(self._first_shape)}"
            raise RecordError(f"{self.describe(name)} is {shape_text(image.shape)}, but {first}; give resize_param")
        if len(boxes) > MOST:
            raise RecordError(f"{self.describe(name)} has {len(boxes)} boxes; at most {MOST} are read")
        if self.transform.mirror and words[MIRROR] >> 63 == 1:
            boxes = mirrored(boxes)
        self.transform.apply_one(image, words, batch.data[row])
        batch.label[row, : len(boxes), 0] = row
        batch.label[row, : len(boxes), 1:] = boxes

    def _resized(self, image: np.ndarray) -> np.ndarray:
        return resize(image, *self.size) if self.size else image

    def _decoded(self, name: Any, value: Any) -> Annotated:
        try:
            return self.source.decode(value)
        except RecordError as error:
            raise RecordError(f"{self.describe(name)}: {error}") from None

    def describe(self, name: Any) -> str:
        """Return a record's name for messages."""
        return self.source.describe(name)
