"""ArgMax: the indices of the largest values."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from scaffe.layers.layer import Blobs, Layer, register


class ArgMax(Layer):
    """y = the indices of the `top_k` largest values, largest first; of equal values, the highest index first.

    With `axis`: x (outer x K x inner), y (outer x top_k x inner); with `out_max_val`, y holds the values instead.
    Without `axis`: x (N x ...), whose other axes count as one; y (N x 1 x top_k), or with `out_max_val` y (N x 2 x
    top_k), indices and then values. There is no gradient.
    """

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.argmax_param
        self.values, self.top_k = param.out_max_val, param.top_k
        self.flat = not param.HasField("axis")
        if self.top_k < 1:
            raise self.error("argmax_param has top_k 0; give at least 1")

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        shape = bottom[0].shape
        axis = 1 if self.flat else self._axis(bottom)
        rest = () if self.flat else shape[axis + 1 :]
        self.count = prod(shape[1:]) if self.flat else shape[axis]
        self.view = prod(shape[:axis]), self.count, prod(rest)
        if self.top_k > self.count:
            raise self.shape_error(f"top_k {self.top_k} exceeds the {self.count} values of a bottom of shape {shape}")
        if self.flat:
            top[0].reshape(shape[0], 1 + self.values, self.top_k, *(1,) * (len(shape) - 3))
        else:
            top[0].reshape(*shape[:axis], self.top_k, *rest)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        xp, x = self.xp, bottom[0].array.reshape(self.view)
        # A stable sort of the values in reverse order puts the highest index of equal values first.
        order = xp.argsort(-x[:, ::-1], axis=1, kind="stable")[:, : self.top_k]
        indices = self.count - 1 - order
        y = top[0].array.reshape(self.view[0], -1, self.top_k, self.view[2])
        if self.flat or not self.values:
            y[:, 0] = indices
        if self.values:
            y[:, -1] = xp.take_along_axis(x, indices, axis=1)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        self.refuse_gradient(propagate_down, 0, "values")

    def allows_force_backward(self, bottom_index: int) -> bool:
        return False

    def mixes_samples(self, bottom: Blobs) -> str:
        return "" if self.flat or self._axis(bottom) else "it compares values on axis 0"

    def _axis(self, bottom: Blobs) -> int:
        return self.canonical_axis(self.param.argmax_param.axis, bottom[0])


register("ArgMax", ArgMax)
