"""Caffe's transform_param on whole batches: (x - mean) * scale, cropped, mirrored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from readers.datum import shape_text
from readers.errors import ReaderError, RecordError
from readers.keyed import bounded, key

ROW, COLUMN, MIRROR = range(3)  # what is drawn for a sample


@dataclass(frozen=True, eq=False)
class Transform:
    """What is done to each image (C x H x W) on its way into a batch.

    `mean` (C x H x W, float32) or `mean_values` (one for all channels or one a channel) is subtracted, then
    `scale` multiplies. `crop_size` cuts a square, at a random place when `train`, else from the centre; the
    mean image is cut at the same place. `mirror` flips about half of the images left to right, in both phases, as
    Caffe does. `color` is what encoded images are decoded to (see `decode`). Place and flip depend on `seed`,
    epoch and record alone, so not on the number of ranks. Raises ReaderError for settings that contradict.
    """

    scale: float = 1
    crop_size: int = 0
    mirror: bool = False
    mean: np.ndarray | None = None
    mean_values: tuple[float, ...] = ()
    color: bool | None = None
    train: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.mean is not None and self.mean_values:
            raise ReaderError("transform_param has both mean_file and mean_value: keep one of them")
        if self.crop_size < 0:
            raise ReaderError(f"transform_param: expected a crop_size of 0 or more, got {self.crop_size}")
        if self.mean is not None and self.mean.ndim != 3:
            raise ReaderError(f"expected a mean image (C x H x W), got {shape_text(self.mean.shape)}")

    def output_shape(self, image_shape: Sequence[int]) -> tuple[int, int, int]:
        """Return the shape (C x h x w) that an image of `image_shape` comes out with.

        Raises RecordError where the image does not fit the crop, the mean image or the mean values.
        """
        channels, height, width = image_shape
        text = shape_text(tuple(image_shape))
        if self.crop_size > min(height, width):
            raise RecordError(f"is {text}, smaller than the crop_size of {self.crop_size}")
        if self.mean is not None and self.mean.shape != (channels, height, width):
            raise RecordError(f"is {text}, but the mean image is {shape_text(self.mean.shape)}")
        if len(self.mean_values) not in (0, 1, channels):
            raise RecordError(f"is {text}, but there are {len(self.mean_values)} mean values: give 1 or {channels}")
        return channels, self.crop_size or height, self.crop_size or width

    def apply(self, images: Sequence[np.ndarray], epochs: np.ndarray, indices: np.ndarray, out: np.ndarray) -> None:
        """Write n transformed images to `out` (n x C x h x w, float32).

        `epochs` and `indices` (n) say of which epoch and record each image is. The images may differ in
        height and width if `output_shape` gives the same for all; the caller has asked it.
        """
        height, width = out.shape[2:]
        tops, lefts = self._places(images, epochs, indices, height, width)
        flips = self._flips(epochs, indices)
        for row, image, top, left, flip in zip(out, images, tops, lefts, flips, strict=True):
            window = np.s_[:, top : top + height, left : left + width]
            target = row[:, :, ::-1] if flip else row
            if self.mean is None:
                target[...] = image[window]
            else:
                np.subtract(image[window], self.mean[window], out=target)
        if self.mean_values:
            out -= np.array(self.mean_values, np.float32)[:, None, None]
        if self.scale != 1:
            out *= np.float32(self.scale)

    def _places(
        self, images: Sequence[np.ndarray], epochs: np.ndarray, indices: np.ndarray, height: int, width: int
    ) -> tuple[list[int], list[int]]:
        """Return the top row and the left column of each image's crop."""
        down = np.array([image.shape[1] - height for image in images], np.uint64)
        right = np.array([image.shape[2] - width for image in images], np.uint64)
        if not (self.crop_size and self.train):
            return (down // 2).tolist(), (right // 2).tolist()
        tops = draw(self.seed, epochs, indices, ROW, down + 1)
        return tops.tolist(), draw(self.seed, epochs, indices, COLUMN, right + 1).tolist()

    def _flips(self, epochs: np.ndarray, indices: np.ndarray) -> list[int]:
        """Return 1 for each image to be mirrored, else 0."""
        if not self.mirror:
            return [0] * len(indices)
        return draw(self.seed, epochs, indices, MIRROR, np.uint64(2)).tolist()


def draw(
    seed: int, epochs: np.ndarray, indices: np.ndarray, purpose: int, bounds: np.ndarray | np.uint64
) -> np.ndarray:
    """Return uniform integers in [0, bounds) (n, uint64), each a function of its own five numbers alone."""
    return bounded(key(seed, purpose, epochs, indices), bounds)
