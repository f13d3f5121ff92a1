"""Data: batches of records from a database, read ahead by this rank's own thread."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from readers import Batch, BatchQueue, BatchReader, LMDBReader, Shard, Transform, read_mean
from scaffe.blob import Blob
from scaffe.context import TRAIN
from scaffe.layers.layer import Layer, register
from scaffe.proto import DataParameter


class Data(Layer):
    """Top 0: images (n x C x h x w), transformed; top 1: labels (n). Both are the reader's own arrays.

    n is this rank's share of batch_size. Reading starts with the first forward pass, at the sample that `seek`
    named last. `position` is the next sample, counted over all ranks.
    """

    bottoms = (0, 0)
    tops = (1, 2)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        data, context = self.param.data_param, self.context
        self.batch: Batch | None = None
        self._queue: BatchQueue | None = None
        self._consumed = 0  # global batches since the last seek
        if data.batch_size < 1:
            raise self.error(f"batch_size must be 1 or more, got {data.batch_size}")
        self._rows = context.take_share(self.name, data.batch_size)
        self._reader = self._open()
        self.samples_per_batch = data.batch_size * (context.size if context.scaling == "weak" else 1)
        self._shard = Shard(len(self._reader), self.samples_per_batch, *self._part(), first=self._skip())
        self._transform = self._read_transform()
        self._shape = BatchReader(self._reader, self._shard, self._transform).shape

    def _open(self) -> LMDBReader:
        data = self.param.data_param
        is_lmdb = os.path.exists(os.path.join(data.source, "data.mdb"))
        if data.backend != DataParameter.LMDB and not is_lmdb and os.path.exists(os.path.join(data.source, "CURRENT")):
            raise self.error(f"'{data.source}' is a LevelDB, which is not read yet; convert it to LMDB")
        return LMDBReader(data.source)

    def _part(self) -> tuple[int, int]:
        first = self.context.first_row
        return first, first + self._rows

    def _skip(self) -> int:
        """Return how many records rand_skip leaves out, the same on every rank."""
        limit = self.param.data_param.rand_skip
        return int(self.context.generator("rand_skip", self.name).integers(limit)) if limit else 0

    def _read_transform(self) -> Transform:
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

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].reshape(self._rows, *self._shape)
        if len(top) > 1:
            top[1].reshape(self._rows)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Let the tops be the next batch, and give the last one back to the reader."""
        queue = self._queue or self._start()
        if self.batch is not None:
            queue.recycle(self.batch)
        self.batch = queue.get()
        self._consumed = self.batch.number + 1
        top[0].array = self.batch.data
        if len(top) > 1:
            top[1].array = self.batch.label

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Do nothing: records have no gradient."""

    def _start(self) -> BatchQueue:
        transform = replace(self._transform, seed=self.context.seed)
        self._source = BatchReader(self._reader, self._shard, transform)
        population = self._source.allocate(max(2, self.param.data_param.prefetch))
        self._queue = BatchQueue(self._source.fill, self.context.batch_numbers(), population)
        return self._queue

    @property
    def first(self) -> int:
        """The sample at which batch 0 began."""
        return self._shard.first

    @property
    def position(self) -> int:
        """Samples consumed over all ranks, records that were skipped at the start included."""
        return self._shard.position(self._consumed)

    def seek(self, sample: int) -> None:
        """Let the next batch begin at `sample`, a number that `position` gave, on any number of ranks."""
        self.close()
        self._shard = replace(self._shard, first=sample)
        self._consumed = 0

    def origin(self, row: int) -> str:
        """Return what messages call the record in a row of the current batch."""
        return self._source.describe(self.batch.keys[row]) if self.batch else ""

    def close(self) -> None:
        """End the reader thread; the next forward pass starts another."""
        if self._queue is not None:
            self._queue.close()
        self._queue = self.batch = None


register("Data", Data)
