"""HDF5Output: two bottoms written to an HDF5 file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np

from readers import HDF5Writer
from scaffe.context import TRAIN
from scaffe.files.outputs import check_replaced
from scaffe.layers.layer import Blobs, Layer, register
from scaffe.proto.kinds import HDF5


class HDF5Output(Layer):
    """Append bottom 0 to the dataset "data" and bottom 1 to "label": (N x C x H x W), float32, missing axes of size 1.

    Each forward pass appends its rows (Caffe's layer works for one forward pass only). The file appears, complete,
    when the net is closed or garbage-collected. Of several ranks, each writes its rows to its own file,
    NAME.rank0of4.h5 for NAME.h5, with a dataset "row" of the rows' indices over all ranks.
    """

    bottoms = (2, 2)
    tops = (0, 0)
    unsaved = "it writes a file"

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        name = self.param.hdf5_output_param.file_name
        if not name:
            raise self.error("hdf5_output_param needs a file_name")
        stem, suffix = os.path.splitext(name)
        path = f"{stem}{self.context.file_mark}{suffix}"
        check_replaced(f"layer '{self.name}': file_name", path, own=[HDF5])
        self._writer = HDF5Writer(path)
        self._numbers: Iterator[int] | None = None
        self._first_number = 0

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        if bottom[0].num != bottom[1].num:
            raise self.shape_error(f"needs as many labels as rows of data, got {bottom[0].shape} and {bottom[1].shape}")

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        arrays = {name: _four_axes(blob.data) for name, blob in zip(("data", "label"), bottom, strict=True)}
        if self.context.file_mark:
            arrays["row"] = self._rows(bottom[0].num)
        self._writer.append(**arrays)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        for blob, down in zip(bottom, propagate_down, strict=True):
            if down:
                blob.diff_array[...] = 0

    def close(self) -> None:
        self._writer.close()

    def _rows(self, count: int) -> np.ndarray:
        """Return the indices, over all ranks and since the first batch, of this pass's rows (n, int64)."""
        if self._numbers is None:
            self._numbers = self.context.batch_numbers()  # in a test those of all its batches, in training from 0 on
            self._first_number = self.context.batch_number if self.context.phase == TRAIN else 0
        number = self._first_number + next(self._numbers)
        return number * self.context.total(count) + self.context.first_row + np.arange(count)


def _four_axes(array: np.ndarray) -> np.ndarray:
    return array.reshape(*array.shape, *[1] * (4 - array.ndim))


register("HDF5Output", HDF5Output)
