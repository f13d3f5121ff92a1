"""The bases of data layers: this rank's part of each global batch, the position in the data, and prefetching."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from readers import Batch, BatchFiller, BatchQueue, Shard, SkippingBatches, Transform, order, read_mean
from readers.batch_queue import allocate
from readers.skipping import Labels, RecordFiller, first_good
from readers.waited import Waited
from scaffe.blobs.delivery import Delivery, Fill
from scaffe.context import TRAIN
from scaffe.layers.layer import Blobs, Layer
from scaffe.proto import InputTransform, TransformationParameter

OF_BOXES = "resize_param", "distort_param", "expand_param", "emit_constraint"  # SSD's, of pictures with boxes


class BaseData(Layer):
    """Give samples, which are counted over all ranks; `position` is the next sample.

    Subclasses call `take_part` in `setup`, when they know the number of records.
    """

    bottoms = (0, 0)
    shuffle = ""  # the order of the records, "" where there is no choice: what a snapshot keeps
    _transform: Any = None  # of images, a Transform or WindowTransform; None where it prepares none

    def take_part(self, records: int, batch_size: int, first: int = 0) -> None:
        """Set this rank's rows of batches of `batch_size` samples; batch 0 begins at sample `first`."""
        if batch_size < 1:
            raise self.error(f"batch_size must be 1 or more, got {batch_size}")
        rows = self.context.take_share(self.name, batch_size)
        row = self.context.first_row
        self.samples_per_batch = batch_size * (self.context.size if self.context.scaling == "weak" else 1)
        self.shard = Shard(records, self.samples_per_batch, row, row + rows, first)
        self.labels: list[Labels] = []
        self.consumed = 0  # global batches since the last seek
        self.records_read = self.bad_read = 0  # by this rank in this run; the bad ones are among them
        self.complaints: list[str] = []  # about bad ones, until they are logged

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """Do nothing; samples have no gradient."""

    def input_transform(self, net: str) -> InputTransform | None:
        """Return how it prepares images, as a file of the weights of `net` has it; None where it prepares none."""
        one = self._transform
        if one is None:
            return None
        found = InputTransform(net=net, layer=self.label, transform_param=self.param.transform_param)
        found.transform_param.scale = one.scale
        if one.mean is not None:
            found.mean.extend(one.mean.mean((1, 2), dtype=np.float64).tolist())
        return found

    @property
    def records(self) -> int:
        """Number of records, 0 if it is not known yet."""
        return self.shard.records

    @property
    def first(self) -> int:
        """The first sample of batch 0."""
        return self.shard.first

    @property
    def position(self) -> int:
        """Samples consumed over all ranks, including those skipped at the start."""
        return self.shard.position(self.consumed)

    def seek(self, sample: int) -> None:
        """Begin the next batch at `sample`, a value of `position` from a run on any number of ranks."""
        self.close()
        self.shard = replace(self.shard, first=sample)
        self.consumed = 0

    def make_delivery(self) -> Delivery:
        """Return what brings batches to the tops."""
        return self.context.engine.delivery()

    def accept(self, top: int, classes: int, ignore: int | None) -> None:
        """Register that a layer reads a top as labels: valid are 0 to classes - 1 and `ignore`."""
        self.labels.append(Labels(top, classes, ignore))


class PrefetchingData(BaseData):
    """Read batches ahead of use in threads of this rank; the tops' arrays are the reader's buffers.

    Reading
    starts in the first forward pass, at the sample of the last `seek`. Subclasses call `take_part`, then
    `look_ahead`, and return the object that reads from `reading`.
    """

    reads_ahead = True
    waited: Waited
    own_shuffle = "none"  # the order that the prototxt asks for

    @property
    def shuffle(self) -> str:  # type: ignore[override]
        """The order of the records: the run's in training, if it names one, else the prototxt's."""
        asked = self.context.reading.shuffle if self.context.phase == TRAIN else ""
        return asked or self.own_shuffle

    def ordered(self) -> Shard:
        """Return this rank's part of the samples in the order of `shuffle`, for the context's current seed."""
        return replace(self.shard, order=order(self.shuffle, self.context.seed, self.shard.records))

    def reading(self) -> BatchFiller:
        """Return the object that fills batches of `self.shard`, for the context's current seed."""
        raise NotImplementedError

    def look_ahead(self) -> None:
        """Determine the tops' shapes, so that errors of the source show before the first forward pass."""
        self.waited = Waited()
        self._fed = False
        self._queue: BatchQueue | None = None
        self._delivery = self.make_delivery()
        self._reading = self.reading()

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        for blob, shape in zip(top, self._reading.shapes, strict=False):  # a label without a top is read all the same
            blob.reshape(self.shard.rows, *shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        """Set the tops to the next batch; the previous batch's buffer returns to the reader."""
        if not self._fed:
            self.feed()
        self._fed = False
        assert self.batch is not None
        self._delivery.give(self.batch, top)

    def feed(self) -> None:
        """Get the batch of the next forward pass.

        If the root reads for all ranks, the call is collective and made by the thread that calls MPI.
        """
        begin, first = perf_counter(), self.consumed == 0
        self.batch = self._scattered(self.context.scatter) if self.context.scatter else self._next()
        self.waited.add(perf_counter() - begin, self.batch, first)
        self.consumed = self.batch.number + 1
        self.records_read += self.shard.rows
        if self.batch.bad:
            self.bad_read += len(self.batch.bad)
            self.records_read += len(self.batch.bad)
            self.complaints += self.batch.bad
        self._fed = True

    def _next(self) -> Batch:
        queue = self._queue or self._start()
        if self.batch is not None:
            queue.recycle(self.batch)
        return queue.get()

    def _scattered(self, scatter: Callable[[Batch | None, Batch], None]) -> Batch:
        """Return this rank's rows of the batch that the root has read."""
        mine = self.batch or self._own()
        self._delivery.wait(mine)
        if self.context.rank:
            scatter(None, mine)
        else:
            queue = self._queue or self._start()
            whole = queue.get()
            scatter(whole, mine)
            mine.bad = whole.bad
            queue.recycle(whole)
        self._delivery.send(mine)
        return mine

    def _own(self) -> Batch:
        """Return a new batch for this rank's rows of what the root reads."""
        batches = allocate(1, self.shard.rows, self._reading.shapes, self._delivery.memory())
        return self._delivery.add(batches)[0]

    @property
    def spare(self) -> float | None:
        """The fraction of records that may be bad, None if the first bad record is an error."""
        settings = self.context.reading
        return settings.max_bad_records if settings.bad_records == "skip" else None

    def passing_over(self, make: Callable[[int], RecordFiller]) -> BatchFiller:
        """Return the object that fills batches, without bad records if the run skips them.

        `make` gets the index of the record that determines the shapes.
        """
        if self.spare is None:
            return make(0)
        return SkippingBatches(first_good(make, self.shard.records, self.spare), self.spare, self.labels)

    def _start(self) -> BatchQueue:
        self._reading = reading = self.reading()
        if self.context.scatter:  # this rank reads all ranks' rows
            reading.shard = replace(reading.shard, start=0, stop=reading.shard.batch)
        threads = self.context.reader_threads
        fill: Fill = reading.fill
        if self.context.scatter:  # whole batches, whose parts are sent to the ranks
            population = reading.allocate(self._population(threads))
        else:
            population = self._delivery.add(reading.allocate(self._population(threads), self._delivery.memory()))
            fill = self._delivery.filling(fill)
        self._queue = BatchQueue(fill, self.context.batch_numbers(), population, threads)
        return self._queue

    def _population(self, threads: int) -> int:
        """Return the number of batch buffers: those read ahead, one per thread at least, and the net's current one."""
        ahead = self.context.reading.prefetch
        return max(ahead + 1 if ahead else self.param.data_param.prefetch, threads + 1)

    def origin(self, row: int) -> str:
        return self._reading.describe(self.batch.keys[row]) if self.batch else ""

    def close(self) -> None:
        """End the reader threads; the next forward pass starts new ones."""
        if self._queue is not None:
            self._queue.close()
        self._delivery.close()
        self._queue, self.batch, self._fed = None, None, False

    def named(self, source: str) -> str:
        """Return `source`. Raise NetError if it is empty."""
        if not source:
            raise self.error("no source is given; name a file or database")
        return source

    def skip(self, limit: int) -> int:
        """Return the number of records that rand_skip skips, below `limit`, the same on all ranks."""
        return int(self.context.generator("rand_skip", self.label).integers(limit)) if limit else 0

    def transform(self) -> Transform:
        """Return the transformation that transform_param describes, without a seed."""
        p = self.param.transform_param
        if given := [name for name in OF_BOXES if p.HasField(name)]:
            raise self.error(
                f"transform_param has {given[0]}, which AnnotatedData alone takes; leave it out, and resize by "
                "convert-imageset --resize-width W --resize-height H"
            )
        return self.transform_of(p)

    def transform_of(self, p: TransformationParameter) -> Transform:
        """Return the transformation that these fields describe, without a seed."""
        if p.force_color and p.force_gray:
            raise self.error("has both force_color and force_gray; give one")
        return Transform(
            scale=p.scale,
            crop_size=p.crop_size,
            mirror=p.mirror,
            mean=read_mean(p.mean_file) if p.mean_file else None,
            mean_values=tuple(p.mean_value),
            color=True if p.force_color else False if p.force_gray else None,
            train=self.context.phase == TRAIN,
        )
