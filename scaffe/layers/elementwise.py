"""Elementwise: what the layers that compute value by value have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.layers.layer import Blobs, Layer


class Elementwise(Layer):
    """y = f(x), value by value; may work in place. Subclasses implement `f` and `df`.

    The gradient is that of the values that stand in the blobs by then, as in Caffe: in place x is y, or what in-place
    layers behind have made of it. Where that can't give the gradient even of a layer alone (Caffe's is wrong then, as
    Power's and Log's, or refused, as AbsVal's) a layer that works in place keeps x.
    """

    capturable = True
    in_place = True
    keeps_input = False  # does df need x, also where y has taken its place?

    def f(self, x: Any, out: Any) -> None:
        """Write f(x) into `out`, which may be `x`."""
        raise NotImplementedError

    def df(self, x: Any, y: Any, out: Any) -> None:
        """Write f's derivative at x into `out`, which is neither x nor y; without `keeps_input`, x may be y."""
        raise NotImplementedError

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        x = self.kept_input(bottom[0], top[0]) if self.keeps_input else bottom[0].array
        self.f(x, top[0].array)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        x, y = bottom[0].array, top[0].array
        slope = self.scratch("slope", y.shape, y.dtype)
        if self.keeps_input and top[0] is bottom[0]:
            x, y = self.buffer("kept input", x.shape, x.dtype), self.scratch("y again", y.shape, y.dtype)
            self.f(x, y)
        self.df(x, y, slope)
        self.xp.multiply(top[0].diff_array, slope, out=bottom[0].diff_array)
