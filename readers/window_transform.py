"""Windows cut from an image and warped to one size, with context around (R-CNN, Girshick et al. 2014, appendix A)."""

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
    """What is done to a window (C x H x W) on its way into a batch.

    The box is cut out and warped to `crop_size`; in mode "square" it is first widened to a square. With
    `context_pad` it is widened so that so many pixels around are context; what lies outside of the image stays 0.
    `mirror` flips about half of the windows. Of the `mean` image the centre is subtracted, or `mean_values` (one,
    or one a channel), then `scale` multiplies. Raises ReaderError for settings that contradict.
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

        Raises RecordError where the box is not inside of the image.
        """
        out[...] = 0
        across, down = self._sides(*box.tolist(), *image.shape[1:])
        top, left = down.before, across.after if flip else across.before
        height, width = min(down.length, self.crop_size - top), min(across.length, self.crop_size - left)
        if height < 1 or width < 1:
            return  # all of it is outside, up to rounding
        warped = resize(image[:, down.first : down.last + 1, across.first : across.last + 1], height, width)
        target = np.s_[:, top : top + height, left : left + width]
        out[target] = warped[:, :, ::-1] if flip else warped
        out[target] -= self._mean()[target] if self.mean is not None else self._mean()
        out[target] *= np.float32(self.scale)

    def _mean(self) -> np.ndarray:
        """Return the part of the mean image under a crop, or the mean values (C x 1 x 1)."""
        if self.mean is None:
            return np.array(self.mean_values or (0,), np.float32)[:, None, None]
        start = (self.mean.shape[2] - self.crop_size) // 2  # Caffe's offset, down as well as across
        return self.mean[:, start : start + self.crop_size, start : start + self.crop_size]

    def _sides(self, x1: int, y1: int, x2: int, y2: int, rows: int, columns: int) -> tuple[_Side, _Side]:
        """Return across and down what of the image a box takes, and where in the crop that goes."""
        outside = f"x {x1} to {x2}, y {y1} to {y2} is no part of an image of {columns} x {rows} pixels"
        if x2 < x1 or y2 < y1:
            raise RecordError(outside)
        if self.context_pad or self.crop_mode == "square":
            (x1, x2), (y1, y2) = self._widened(x1, y1, x2, y2)
            across, down = _clipped(x1, x2, columns, self.crop_size), _clipped(y1, y2, rows, self.crop_size)
        else:
            across, down = _Side(x1, x2, 0, 0, self.crop_size), _Side(y1, y2, 0, 0, self.crop_size)
        for side, size in ((across, columns), (down, rows)):
            if not 0 <= side.first <= side.last < size:
                raise RecordError(outside)
        return across, down

    def _widened(self, x1: int, y1: int, x2: int, y2: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the box with its context, to a square in that mode: (x1, x2), (y1, y2). In float32, as Caffe."""
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


class _Side(NamedTuple):
    """Along one axis: the pixels first to last, and in the crop what stays free before and after, and their length."""

    first: int
    last: int
    before: int
    after: int
    length: int


def _clipped(first: int, last: int, size: int, crop: int) -> _Side:
    """Return what is inside of [0, size) of pixels first to last, when all of them are warped to `crop`."""
    before, after = max(0, -first), max(0, last - size + 1)
    scale = np.float32(crop) / np.float32(last - first + 1)
    inside = last - after - first - before + 1
    lengths = (_round(np.float32(length) * scale) for length in (before, after, inside))
    return _Side(first + before, last - after, *lengths)


def _round(value: np.float32) -> int:
    """Round half away from zero, as C does."""
    return int(math.copysign(math.floor(abs(float(value)) + 0.5), value))
