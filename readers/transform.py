"""Transform: Caffe's transform_param on whole batches: (x - mean) * scale, cropped, mirrored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from readers.datum import shape_text
from readers.errors import ReaderError, RecordError
from readers.keyed import bounded, key
from readers.planes import planes

Images = Sequence[np.ndarray] | np.ndarray  # C x H x W each; or one array (n x C x H x W) of small images of one shape

ROW, COLUMN, MIRROR = range(3)  # keys of a sample's random numbers


@dataclass(frozen=True, eq=False)
class Transform:
    """The transform of each image (C x H x W) of a batch.

    - `crop_size` cuts a square, at a random place when `train`, else from the centre.
    - `mirror` flips about half of the images left to right, in both phases, as in Caffe.
    - `mean` (C x H x W, float32), cropped at the same place, or `mean_values` (one, or one for each channel) is
      subtracted; then `scale` multiplies.
    - `color` selects the channels of decoded images (see `decode`).

    Crop and flip depend on `seed`, epoch and record alone, not on the number of ranks. Raises ReaderError for settings
    that contradict each other.
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
        """Return the shape (C x h x w) of a transformed image of `image_shape`.

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

    def apply(self, images: Images, epochs: np.ndarray, indices: np.ndarray, out: np.ndarray) -> None:
        """Write n transformed images to `out` (n x C x h x w, float32).

        `epochs` and `indices` (n) are the epoch and the record of each image. Images may differ in height and width if
        `output_shape` is the same for all, which the caller has checked. Small images of one shape are transformed
        fastest as one array (n x C x H x W).
        """
        if isinstance(images, np.ndarray):
            tops, lefts, flips = self.places(images.shape[2:], epochs, indices)
            self._apply_stacked(images, tops, lefts, flips, out)
            return
        for row, image, words in zip(out, images, self.words(epochs, indices), strict=True):
            self.apply_one(image, words, row)

    def words(self, epochs: np.ndarray, indices: np.ndarray) -> list[list[int]]:
        """Return for each image its three random words, for `apply_one`."""
        drawn: list[list[int]] = key(self.seed, np.arange(3)[:, None], epochs, indices).T.tolist()
        return drawn

    def apply_one(self, image: np.ndarray, words: Sequence[int], out: np.ndarray) -> None:
        """Write one transformed image to `out` (C x h x w, float32)."""
        height, width = out.shape[1:]
        top, left, flip = self._place(image.shape, words)
        np.copyto(out, planes(image, np.s_[top : top + height, left : left + width], -1 if flip else 1))
        self._scaled(out, self._mean_under(top, left, height, width, flip))

    def _scaled(self, out: np.ndarray, mean: np.ndarray | None) -> None:
        """Subtract the window of the mean image and the mean values from `out` (... x C x h x w), and multiply it."""
        if mean is not None:
            out -= mean
        if self.mean_values:
            out -= self._values
        if self.scale != 1:
            out *= np.float32(self.scale)

    @cached_property
    def _values(self) -> np.ndarray:
        return np.array(self.mean_values, np.float32)[:, None, None]

    def _place(self, shape: Sequence[int], words: Sequence[int]) -> tuple[int, int, bool]:
        """Return top row, left column and flip of one image (C x H x W), as `places` does."""
        rooms = [size - self.crop_size if self.crop_size else 0 for size in shape[1:]]
        if self.train:
            top, left = (((word >> 32) * (room + 1)) >> 32 for word, room in zip(words, rooms, strict=False))
        else:
            top, left = (room >> 1 for room in rooms)
        return top, left, self.mirror and words[MIRROR] >> 63 == 1

    def _mean_under(self, top: int, left: int, height: int, width: int, flip: bool) -> np.ndarray | None:
        """Return the window of the mean image for a crop, flipped with it (C x h x w)."""
        if self.mean is None:
            return None
        mean, left = (self._mirrored_mean, self.mean.shape[2] - left - width) if flip else (self.mean, left)
        return mean[:, top : top + height, left : left + width]

    def _apply_stacked(
        self, images: np.ndarray, tops: np.ndarray, lefts: np.ndarray, flips: np.ndarray, out: np.ndarray
    ) -> None:
        """Write transformed images of one shape (n x C x H x W) to `out`, all at once."""
        size, rows = out.shape[2:], np.arange(len(out))
        whole = size == images.shape[2:]
        windows = images if whole else sliding_window_view(images, size, axis=(2, 3))[rows, :, tops, lefts]
        flipped = np.flatnonzero(flips)
        if len(flipped):  # as bytes: less to copy than floats
            windows = windows.copy() if whole else windows
            windows[flipped] = windows[flipped, :, :, ::-1]
        np.copyto(out, windows)
        self._scaled(out, None if self.mean is None else self._means_under(tops, lefts, flips, size))

    def _means_under(self, tops: np.ndarray, lefts: np.ndarray, flips: np.ndarray, size: tuple[int, int]) -> np.ndarray:
        """Return the windows of the mean image for crops, flipped with them (n x C x h x w), or one for all."""
        assert self.mean is not None
        if size == self.mean.shape[1:] and not flips.any():
            return self.mean
        lefts = np.where(flips, self.mean.shape[2] - size[1] - lefts, lefts)
        windows: np.ndarray = self._mean_windows[flips, tops, lefts]
        return windows

    @cached_property
    def _mean_windows(self) -> np.ndarray:
        """All windows of the mean image and of its mirror image, by flip, row and column: a view."""
        assert self.mean is not None
        size = (self.crop_size,) * 2 if self.crop_size else self.mean.shape[1:]
        both = np.stack([self.mean, self._mirrored_mean])
        return sliding_window_view(both, size, axis=(2, 3)).transpose(0, 2, 3, 1, 4, 5)

    @cached_property
    def _mirrored_mean(self) -> np.ndarray:
        assert self.mean is not None
        return np.ascontiguousarray(self.mean[:, :, ::-1])

    def places(self, size: Sequence[int], epochs: np.ndarray, indices: np.ndarray) -> np.ndarray:
        """Return the top row and the left column of each image's crop, and 1 to mirror it, else 0 (3 x n, int64).

        `size` is the height and width of all images; `epochs` and `indices` are as in `apply`. All numbers are drawn at
        once: for small images numpy's calls take longer than its arithmetic.
        """
        random = bool(self.crop_size and self.train)
        bounds = np.ones((3, len(indices)), np.int64)
        if self.crop_size:
            bounds[ROW], bounds[COLUMN] = (side - self.crop_size + 1 for side in size)
        bounds[MIRROR] = 2
        found = (bounds - 1) >> 1  # the centre, and no mirror
        if random or self.mirror:
            drawn = draw(self.seed, epochs, indices, np.arange(3)[:, None], bounds)
            if random:
                found[:MIRROR] = drawn[:MIRROR]
            if self.mirror:
                found[MIRROR] = drawn[MIRROR]
        return found


def draw(
    seed: int, epochs: np.ndarray, indices: np.ndarray, purpose: np.ndarray | int, bounds: np.ndarray | np.uint64
) -> np.ndarray:
    """Return uniform integers in [0, bounds) (n, uint64), each a function of its own five arguments alone."""
    return bounded(key(seed, purpose, epochs, indices), bounds)
