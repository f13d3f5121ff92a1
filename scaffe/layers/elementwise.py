"""Elementwise: the base of layers that apply a function to each element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.layers.layer import Blobs, Layer


class Elementwise(Layer):
    """y = f(x) for each element; x and y of any shape. Subclasses implement `f` and `df`. May work in place.

    As in Caffe, the gradient is computed from the values that the blobs hold at the backward pass. In place, x is y,
    or the result of following layers that work in place too. A subclass whose gradient needs x itself sets
    `keeps_input`; it then copies x when it works in place. (Caffe computes a wrong gradient there, as for Power and
    Log, or refuses, as for AbsVal.)
    """

    capturable = True
    in_place = True
    keeps_input = False  # whether `df` needs x after y has overwritten it

    def f(self, x: Any, out: Any) -> None:
        """Write y into `out`, which may be `x`."""
        raise NotImplementedError

    def df(self, x: Any, y: Any, out: Any) -> None:
        """Write the derivative of f at x into `out`, which is neither x nor y. Without `keeps_input`, x may be y."""
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
