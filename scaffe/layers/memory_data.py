"""MemoryData: batches of arrays that the caller sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from readers.batch_queue import allocate
from scaffe.layers.base_data import BaseData
from scaffe.layers.layer import Blobs, register


class MemoryData(BaseData):
    """Read the rows of the caller's arrays in order, again and again.

    Tops: data (n x C x H x W), labels (n); n is this rank's share of batch_size. All ranks need the same arrays.
    """

    tops = (2, 2)
    unsaved = "the program sets its arrays"

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        p = self.param.memory_data_param
        self._shape = p.channels, p.height, p.width
        if min(p.batch_size, *self._shape) < 1:
            raise self.error("memory_data_param needs a batch_size, channels, height and width of 1 or more")
        self._arrays: tuple[np.ndarray, ...] = ()
        self._numbers: Iterator[int] | None = None
        self.take_part(p.batch_size, p.batch_size)
        self._delivery = self.make_delivery()
        batches = allocate(self._delivery.in_turn, self.shard.rows, [self._shape, ()], self._delivery.memory())
        self._batches = self._delivery.add(batches)

    def set_input_arrays(self, data: np.ndarray, labels: np.ndarray) -> None:
        """Set the arrays to read: from the first row, or after a resume from the row after the snapshot's last.

        `data` (N x C x H x W) and `labels` (N, or N x 1 x 1 x 1) are not copied if they are float32 in C order: later
        changes to them show in later batches. Raise ShapeError if N is not a multiple of batch_size, or C, H, W are
        not the layer's.
        """
        data, labels = (np.ascontiguousarray(array, np.float32) for array in (data, labels))
        batch = self.param.memory_data_param.batch_size
        if data.ndim != 4 or data.shape[1:] != self._shape:
            raise self.shape_error(f"expected data of shape (N, {', '.join(map(str, self._shape))}), got {data.shape}")
        if not len(data) or len(data) % batch:
            raise self.shape_error(f"expected a multiple of batch_size {batch} rows, got {len(data)}")
        if labels.shape[:1] != data.shape[:1] or labels.size != len(labels):
            raise self.shape_error(f"expected {len(data)} labels, one for each row, got shape {labels.shape}")
        first = 0 if self.consumed else self.first
        self.shard = replace(self.shard, records=len(data))
        self._arrays = data, labels.reshape(-1)
        self.seek(first)

    @property
    def records(self) -> int:
        return len(self._arrays[0]) if self._arrays else 0

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        top[0].reshape(self.shard.rows, *self._shape)
        top[1].reshape(self.shard.rows)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        if not self._arrays:
            raise self.error("has no data yet; call net.set_input_arrays(data, labels) first")
        self._numbers = self._numbers or self.context.batch_numbers()
        number = next(self._numbers)
        _, rows = self.shard.places(number)
        self.consumed = number + 1
        batch = self._batches[number % len(self._batches)]
        self._delivery.wait(batch)
        for array, target in zip(self._arrays, batch.arrays, strict=True):
            np.take(array, rows, 0, out=target, mode="clip")  # the mode that writes without a copy between
        self._delivery.send(batch)
        self._delivery.give(batch, top)

    def close(self) -> None:
        """Start a new count of batches at the next forward pass."""
        self._numbers = None


register("MemoryData", MemoryData)
