"""WindowTransform: cuts windows from images and warps them, with context (R-CNN, Girshick et al. 2014, appendix A)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from readers.datum import shape_text
from readers.errors import ReaderError, RecordError
from readers.image import resize

CROP_MODES = ("warp", "square")


@dataclass(frozen=True, eq=False)
class WindowTransform:
    """The transform of each window of a batch.

    - The box is cut from the image and warped to `crop_size`; in mode "square" it is first widened to a square.
    - `context_pad` widens the box, so that the outer `context_pad` pixels of the crop are context. Pixels outside of
      the image are 0.
    - `mirror` flips about half of the windows.
    - The centre of the `mean` image, or `mean_values` (one, or one for each channel), is subtracted; then `scale`
      multiplies.

    Raises ReaderError for settings that contradict each other.
    """

    crop_size: int
    scale: float = 1
    mirror: bool = False
    mean: np.ndarray | None = None
    mean_values: tuple[float, ...] = ()
    context_pad: int = 0
    crop_mode: str = "warp"

    def __post_init__(self) -> None:
        if self.crop_size < 1:
            raise ReaderError(f"windows need a crop_size of 1 or more in transform_param, got {self.crop_size}")
        if self.crop_mode not in CROP_MODES:
            raise ReaderError(f"unknown crop_mode '{self.crop_mode}': expected one of {', '.join(CROP_MODES)}")
        if 2 * self.context_pad >= self.crop_size:
            raise ReaderError(f"context_pad {self.context_pad} leaves nothing of a crop_size of {self.crop_size}")
        if self.mean is not None and self.mean_values:
            raise ReaderError("transform_param has both mean_file and mean_value: keep one of them")
        if len(self.mean_values) not in (0, 1, 3):
            raise ReaderError(
                f"windows have 3 channels, but there are {len(self.mean_values)} mean values: give 1 or 3"
            )
        if self.mean is not None and self._mean().shape != (3, self.crop_size, self.crop_size):
            needed = shape_text((3, self.crop_size, self.crop_size))
            raise ReaderError(f"the mean image is {shape_text(self.mean.shape)}, but windows need {needed} or more")

    def apply(self, image: np.ndarray, box: np.ndarray, flip: bool, out: np.ndarray) -> None:
        """Write a box (x1 y1 x2 y2) of an image to `out` (C x crop x crop, float32).

        Raises RecordError where the box is not inside the image.
        """
        out[...] = 0
        across, down = self._sides(*box.tolist(), *image.shape[1:])
        top, left = down.before, across.after if flip else across.before
        height, width = min(down.length, self.crop_size - top), min(across.length, self.crop_size - left)
        if height < 1 or width < 1:
            return  # after rounding all of it is outside
        warped = resize(image[:, down.first : down.last + 1, across.first : across.last + 1], height, width)
        target = np.s_[:, top : top + height, left : left + width]
        out[target] = warped[:, :, ::-1] if flip else warped
        out[target] -= self._mean()[target] if self.mean is not None else self._mean()
        out[target] *= np.float32(self.scale)

    def _mean(self) -> np.ndarray:
        """Return the centre of the mean image (C x crop x crop), or the mean values (C x 1 x 1)."""
        if self.mean is None:
            return np.array(self.mean_values or (0,), np.float32)[:, None, None]
        start = (self.mean.shape[2] - self.crop_size) // 2  # Caffe's offset for rows and columns alike
        return self.mean[:, start : start + self.crop_size, start : start + self.crop_size]

    def _sides(self, x1: int, y1: int, x2: int, y2: int, rows: int, columns: int) -> tuple[_CropAxis, _CropAxis]:
        """Return where a box lies in the crop, across and down. Raises RecordError for a box outside."""
        outside = f"x {x1} to {x2}, y {y1} to {y2} is no part of an image of {columns} x {rows} pixels"
        if x2 < x1 or y2 < y1:
            raise RecordError(outside)
        if self.context_pad or self.crop_mode == "square":
            (x1, x2), (y1, y2) = self._widened(x1, y1, x2, y2)
            across, down = _clipped(x1, x2, columns, self.crop_size), _clipped(y1, y2, rows, self.crop_size)
        else:
            across, down = _CropAxis(x1, x2, 0, 0, self.crop_size), _CropAxis(y1, y2, 0, 0, self.crop_size)
        for side, size in ((across, columns), (down, rows)):
            if not 0 <= side.first <= side.last < size:
                raise RecordError(outside)
        return across, down

    def _widened(self, x1: int, y1: int, x2: int, y2: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the box with its context, squared in that mode: (x1, x2), (y1, y2). In float32, as in Caffe."""
        factor = np.float32(self.crop_size) / np.float32(self.crop_size - 2 * self.context_pad)
        width, height = np.float32((x2 - x1 + 1) / 2), np.float32((y2 - y1 + 1) / 2)
        centres = np.float32(x1) + width, np.float32(y1) + height
        if self.crop_mode == "square":
            width = height = max(width, height)
        halves = width * factor, height * factor
        across, down = (
            (_round(centre - half), _round(centre + half)) for centre, half in zip(centres, halves, strict=True)
        )
        return across, down


class _CropAxis(NamedTuple):
    """Along one axis: pixels first to last of the image, their length in the crop, the crop's pixels around them."""

    first: int
    last: int
    before: int
    after: int
    length: int


def _clipped(first: int, last: int, size: int, crop: int) -> _CropAxis:
    """Return where pixels first to last, warped to `crop`, lie in the crop, without those outside of [0, size)."""
    before, after = max(0, -first), max(0, last - size + 1)
    scale = np.float32(crop) / np.float32(last - first + 1)
    inside = last - after - first - before + 1
    lengths = (_round(np.float32(length) * scale) for length in (before, after, inside))
    return _CropAxis(first + before, last - after, *lengths)


def _round(value: np.float32) -> int:
    """Round half away from zero, as C does."""
    return int(math.copysign(math.floor(abs(float(value)) + 0.5), value))
