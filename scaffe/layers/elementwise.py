"""Elementwise: what the layers that compute value by value have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.layers.layer import Blobs, Layer


class Elementwise(Layer):
    """y = f(x), value by value; may work in place. Subclasses implement `f` and `df`."""

    capturable = True
    in_place = True
    keeps_input = False  # does df need x, also where y has taken its place?

    def f(self, x: Any, out: Any) -> None:
        """Write f(x) into `out`, which may be `x`."""
        raise NotImplementedError

    def df(self, x: Any, y: Any, out: Any) -> None:
        """Write f's derivative at x into `out`, which is neither x nor y; without `keeps_input`, x may hold y."""
        raise NotImplementedError

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        x = bottom[0].array
        self.input = self.kept_input(bottom[0], top[0]) if self.keeps_input else x
        self.f(x, top[0].array)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        y = top[0].array
        slope = self.scratch("slope", y.shape, y.dtype)
        self.df(self.input, y, slope)
        self.xp.multiply(top[0].diff_array, slope, out=bottom[0].diff_array)
