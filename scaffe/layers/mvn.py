"""MVN: mean-variance normalisation of each sample."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from scaffe.layers.layer import Blobs, Layer, register


class MVN(Layer):
    """y = (x - mean) / (standard deviation + eps), or x - mean with `normalize_variance: false`.

    x, y (N x C x ...). Mean and deviation are per sample and channel, or per sample with `across_channels`. May work
    in place, where Caffe's gradient is wrong.
    """

    in_place = True

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.mvn_param
        self.across, self.scales, self.eps = param.across_channels, param.normalize_variance, param.eps

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        shape, axes = bottom[0].shape, 1 if self.across else 2
        if len(shape) < axes:
            raise self.shape_error(f"needs a bottom with at least {axes} axes, got shape {shape}")
        self.view = prod(shape[:axes]), prod(shape[axes:])
        top[0].reshape(*shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        x, y = bottom[0].array.reshape(self.view), top[0].array.reshape(self.view)
        self.xp.subtract(x, x.mean(axis=1, keepdims=True), out=y)
        if self.scales:
            self.deviation = self.xp.sqrt(self._mean_product(y, y)) + self.eps
            y /= self.deviation
            if top[0] is bottom[0]:  # following layers may overwrite the top
                self.buffer("normalised", y.shape, y.dtype)[...] = y

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """Compute dx = (dy - mean(dy) - y mean(y dy)) / deviation."""
        if not propagate_down[0]:
            return
        y, dy = top[0].array.reshape(self.view), top[0].diff_array.reshape(self.view)
        if self.scales and top[0] is bottom[0]:
            y = self.buffer("normalised", y.shape, y.dtype)
        dx = bottom[0].diff_array.reshape(self.view)
        slope = self._mean_product(y, dy) if self.scales else None
        self.xp.subtract(dy, dy.mean(axis=1, keepdims=True), out=dx)
        if slope is not None:
            dx -= self.xp.multiply(y, slope, out=self.buffer("sloped", y.shape, y.dtype))
            dx /= self.deviation

    def _mean_product(self, a: Any, b: Any) -> Any:
        """Return the mean of a b over each row, (rows x 1)."""
        return self.xp.einsum("ij,ij->i", a, b)[:, None] / self.view[1]


register("MVN", MVN)
