"""What data layers have in common: this rank's part of each global batch, where reading stands, reading ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from readers import Batch, BatchQueue, Shard, Transform, read_mean
from scaffe.blob import Blob
from scaffe.context import TRAIN
from scaffe.layers.layer import Blobs, Layer


class Reading(Protocol):
    """What fills batches, in the reader thread: readers.BatchReader and its like."""

    @property
    def shapes(self) -> Sequence[tuple[int, ...]]:
        """The shape of a row of each of a batch's arrays."""

    def allocate(self, count: int) -> list[Batch]: ...

    def fill(self, number: int, batch: Batch) -> None: ...

    def describe(self, key: Any) -> str: ...


class BaseData(Layer):
    """A layer whose tops are samples, counted over all ranks; `position` is the next one.

    Subclasses call `take_part` when they know how many records there are.
    """

    bottoms = (0, 0)

    def take_part(self, records: int, batch_size: int, first: int = 0) -> None:
        """Take this rank's part of batches of `batch_size` samples, the first of them sample `first`."""
        if batch_size < 1:
            raise self.error(f"batch_size must be 1 or more, got {batch_size}")
        rows = self.context.take_share(self.name, batch_size)
        row = self.context.first_row
        self.samples_per_batch = batch_size * (self.context.size if self.context.scaling == "weak" else 1)
        self.shard = Shard(records, self.samples_per_batch, row, row + rows, first)
        self.consumed = 0  # global batches since the last seek

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """Do nothing: samples have no gradient."""

    @property
    def first(self) -> int:
        """The sample at which batch 0 began."""
        return self.shard.first

    @property
    def position(self) -> int:
        """Samples consumed over all ranks, those that were skipped at the start included."""
        return self.shard.position(self.consumed)

    def seek(self, sample: int) -> None:
        """Let the next batch begin at `sample`, a number that `position` gave, on any number of ranks."""
        self.close()
        self.shard = replace(self.shard, first=sample)
        self.consumed = 0

    def give(self, top: Blob, array: np.ndarray) -> None:
        """Let a top be a batch's array: that itself on the host, a copy on a device."""
        if self.context.gpu is None:
            top.array = array
        else:
            top.reshape(*array.shape)
            top.array.set(array)

    def origin(self, row: int) -> str:
        """Return what messages call the sample in a row of the current batch, "" where they have no name for it."""
        return ""


class PrefetchingData(BaseData):
    """A data layer whose batches are read ahead by this rank's own thread; the tops are the reader's own arrays.

    Reading starts with the first forward pass, at the sample that `seek` named last. Subclasses call `take_part`,
    then `look_ahead`, and say in `reading` what reads.
    """

    def reading(self) -> Reading:
        """Return what fills batches of `self.shard`, with the seed that the context has now."""
        raise NotImplementedError

    def look_ahead(self) -> None:
        """Find the tops' shapes, and so what is wrong with the source, before the first forward pass."""
        self.batch: Batch | None = None
        self._queue: BatchQueue | None = None
        self._reading = self.reading()

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        for blob, shape in zip(top, self._reading.shapes, strict=False):  # a label without a top is read all the same
            blob.reshape(self.shard.rows, *shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        """Let the tops be the next batch, and give the last one back to the reader."""
        queue = self._queue or self._start()
        if self.batch is not None:
            queue.recycle(self.batch)
        self.batch = queue.get()
        self.consumed = self.batch.number + 1
        for blob, array in zip(top, self.batch.arrays, strict=False):
            self.give(blob, array)

    def _start(self) -> BatchQueue:
        self._reading = self.reading()
        population = self._reading.allocate(max(2, self.param.data_param.prefetch))
        self._queue = BatchQueue(self._reading.fill, self.context.batch_numbers(), population)
        return self._queue

    def origin(self, row: int) -> str:
        return self._reading.describe(self.batch.keys[row]) if self.batch else ""

    def close(self) -> None:
        """End the reader thread; the next forward pass starts another."""
        if self._queue is not None:
            self._queue.close()
        self._queue = self.batch = None

    def named(self, source: str) -> str:
        """Return the source that the prototxt names. Raise NetError where it names none."""
        if not source:
            raise self.error("no source is given; name a file or database")
        return source

    def skip(self, limit: int) -> int:
        """Return how many records rand_skip leaves out, below `limit`, the same on every rank."""
        return int(self.context.generator("rand_skip", self.name).integers(limit)) if limit else 0

    def transform(self) -> Transform:
        """Return what transform_param asks for, without the seed."""
        p = self.param.transform_param
        return Transform(
            scale=p.scale,
            crop_size=p.crop_size,
            mirror=p.mirror,
            mean=read_mean(p.mean_file) if p.mean_file else None,
            mean_values=tuple(p.mean_value),
            color=True if p.force_color else False if p.force_gray else None,
            train=self.context.phase == TRAIN,
        )
