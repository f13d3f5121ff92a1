"""Softmax: probabilities from scores."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from scaffe.blob import around
from scaffe.layers.layer import Blobs, Layer, register


def softmax(xp: ModuleType, scores: Any, out: Any, axis: int = 1) -> None:
    """Write the softmax of `scores` over an axis into `out`, which may be `scores`."""
    xp.subtract(scores, scores.max(axis=axis, keepdims=True), out=out)
    xp.exp(out, out=out)
    out /= out.sum(axis=axis, keepdims=True)


class Softmax(Layer):
    """y_c = exp(x_c) / sum over k of exp(x_k).

    x, y (outer x classes x inner), classes on `axis`. May work in place.
    """

    in_place = True

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        shape = bottom[0].shape
        self.axis = self._axis(bottom)
        self.view = around(shape, self.axis)
        top[0].reshape(*shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        softmax(self.xp, bottom[0].array.reshape(self.view), top[0].array.reshape(self.view))

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        y, dy = top[0].array.reshape(self.view), top[0].diff_array.reshape(self.view)
        dx = bottom[0].diff_array.reshape(self.view)
        self.xp.subtract(dy, (dy * y).sum(axis=1, keepdims=True), out=dx)
        dx *= y

    def mixes_samples(self, bottom: Blobs) -> str:
        return "" if self._axis(bottom) else "its classes are on axis 0"

    def _axis(self, bottom: Blobs) -> int:
        return self.canonical_axis(self.param.softmax_param.axis, bottom[0])


register("Softmax", Softmax)
