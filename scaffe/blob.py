"""Blob: an N-dimensional array of float32 with its gradient, Caffe's unit of data between layers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import ModuleType

import numpy as np

Shape = tuple[int, ...]


def around(shape: Shape, axis: int) -> tuple[int, int, int]:
    """Return how many elements lie before, on and after an axis, so that any array is seen as three axes."""
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


class Blob:
    """Hold `data` and `diff` of one shape, each allocated when first touched.

    `data` and `diff` are writable arrays on the host, as in pycaffe. `array` and `diff_array` are the same
    values where the layers compute (`xp`); layers use these.
    """

    def __init__(self, shape: Sequence[int] = (), xp: ModuleType = np):
        self.xp = xp
        self._array = self._diff = None
        self.shape: Shape = tuple(shape)

    @property
    def count(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def reshape(self, *shape: int) -> None:
        """Take another shape. The values survive if the count stays, else they are undefined."""
        keep = prod(shape) == self.count
        self._array = self._array.reshape(shape) if keep and self._array is not None else None
        self._diff = self._diff.reshape(shape) if keep and self._diff is not None else None
        self.shape = tuple(shape)

    @property
    def array(self):
        """The values where the layers compute, C order."""
        if self._array is None:
            self._array = self.xp.zeros(self.shape, np.float32)
        return self._array

    @array.setter
    def array(self, array) -> None:
        """Let the blob be a view of `array`, whose shape it takes."""
        if array.shape != self.shape:
            self.reshape(*array.shape)
        self._array = array

    @property
    def diff_array(self):
        """The gradient where the layers compute, C order."""
        if self._diff is None:
            self._diff = self.xp.zeros(self.shape, np.float32)
        return self._diff

    @diff_array.setter
    def diff_array(self, array) -> None:
        self._diff = array.reshape(self.shape)

    @property
    def data(self) -> np.ndarray:
        """The values on the host; writing into them changes the blob."""
        return self.array

    @property
    def diff(self) -> np.ndarray:
        """The gradient on the host; writing into it changes the blob."""
        return self.diff_array

    @property
    def num(self) -> int:
        """Length of axis 0, and so `channels`, `height` and `width`: Caffe's names for up to four axes."""
        return self._axis(0)

    @property
    def channels(self) -> int:
        return self._axis(1)

    @property
    def height(self) -> int:
        return self._axis(2)

    @property
    def width(self) -> int:
        return self._axis(3)

    def _axis(self, axis: int) -> int:
        return self.shape[axis] if axis < len(self.shape) else 1

    def __repr__(self) -> str:
        return f"Blob{self.shape}"
