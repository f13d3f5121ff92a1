"""LRN: local response normalisation, across channels or within each channel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.layers.layer import Blobs, Layer, register


class LRN(Layer):
    """y = x scale^-beta, scale = k + alpha / n (sum of x^2 over a window of n values around the element).

    x, y (N x C x H x W). ACROSS_CHANNELS: the window is `local_size` channels, n = local_size. WITHIN_CHANNEL: it is a
    square of `local_size` x `local_size` pixels, n = local_size^2, and k is 1, as in Caffe. Values outside x count
    as 0. Krizhevsky et al. 2012, section 3.3.
    """

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.lrn_param
        if param.local_size % 2 == 0:
            raise self.error(f"local_size is {param.local_size}; give an odd number")
        self.is_within = param.norm_region == param.WITHIN_CHANNEL
        self.axes: tuple[int, ...] = (1, 2) if self.is_within else (0,)  # of an image
        self.k = 1.0 if self.is_within else param.k
        self.reach = param.local_size // 2
        self.alpha, self.beta = param.alpha / param.local_size ** len(self.axes), param.beta

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        if len(bottom[0].shape) != 4:
            raise self.shape_error(f"needs a bottom with 4 axes (N x C x H x W), got shape {bottom[0].shape}")
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        x, y = bottom[0].array, top[0].array
        self.scale, self.power = self.buffer("scale", x.shape, x.dtype), self.buffer("power", x.shape, x.dtype)
        for image in zip(x, self.scale, self.power, y, strict=True):  # what one needs stays in the cache
            self._forward_image(*image)

    def _forward_image(self, x: Any, scale: Any, power: Any, y: Any) -> None:
        other = self.scratch("other", x.shape, x.dtype)
        self.xp.multiply(x, x, out=other)
        self.xp.multiply(self._window_sum(other), self.alpha, out=scale)
        scale += self.k
        if self.beta == 0.75:  # as in all published nets: roots take a fraction of a power's time
            self.xp.sqrt(scale, out=other)
            self.xp.sqrt(other, out=power)
            power *= other
            self.xp.reciprocal(power, out=power)
        else:
            self.xp.power(scale, -self.beta, out=power)
        self.xp.multiply(x, power, out=y)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """Compute dx_i = dy_i scale_i^-beta - 2 alpha beta / n x_i (sum over j in the window of dy_j y_j / scale_j)."""
        if propagate_down[0]:
            x, dy, dx = bottom[0].array, top[0].diff_array, bottom[0].diff_array
            for image in zip(x, self.scale, self.power, dy, dx, strict=True):
                self._backward_image(*image)

    def _backward_image(self, x: Any, scale: Any, power: Any, dy: Any, dx: Any) -> None:
        ratio = self.scratch("other", x.shape, x.dtype)
        self.xp.multiply(dy, power, out=dx)
        self.xp.multiply(dx, x, out=ratio)
        ratio /= scale
        nearby = self._window_sum(ratio)
        nearby *= x
        nearby *= 2 * self.alpha * self.beta
        dx -= nearby

    def _window_sum(self, values: Any) -> Any:
        """Return the sum over the window around each element of an image, in an array that the next call overwrites."""
        for axis in self.axes:
            sums = self.scratch(f"sums {axis}", values.shape, values.dtype)
            sums[...] = values
            for distance in range(1, min(self.reach, values.shape[axis] - 1) + 1):
                before, after = _shifted(axis, distance)
                sums[after] += values[before]
                sums[before] += values[after]
            values = sums
        return values


def _shifted(axis: int, distance: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return the index of all but the last `distance` values on an axis, and of all but the first `distance`."""
    front = (slice(None),) * axis
    return (*front, slice(None, -distance)), (*front, slice(distance, None))


register("LRN", LRN)
