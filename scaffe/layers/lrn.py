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
        within = param.norm_region == param.WITHIN_CHANNEL
        self.axes: tuple[int, ...] = (2, 3) if within else (1,)
        self.k = 1.0 if within else param.k
        self.reach = param.local_size // 2
        self.alpha, self.beta = param.alpha / param.local_size ** len(self.axes), param.beta

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        if len(bottom[0].shape) != 4:
            raise self.shape_error(f"needs a bottom with 4 axes (N x C x H x W), got shape {bottom[0].shape}")
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        x = bottom[0].array
        self.scale = self.buffer("scale", x.shape, x.dtype)
        self.power = self.buffer("power", x.shape, x.dtype)
        self.xp.multiply(x, x, out=self.power)
        self.scale[...] = self._window_sum(self.power)
        self.scale *= self.alpha
        self.scale += self.k
        self.xp.power(self.scale, -self.beta, out=self.power)
        self.xp.multiply(x, self.power, out=top[0].array)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """Compute dx_i = dy_i scale_i^-beta - 2 alpha beta / n x_i (sum over j in the window of dy_j y_j / scale_j)."""
        if not propagate_down[0]:
            return
        x, dy, dx = bottom[0].array, top[0].diff_array, bottom[0].diff_array
        weighted = dy * self.power
        ratio = self.buffer("ratio", x.shape, x.dtype)
        self.xp.multiply(weighted, x, out=ratio)
        ratio /= self.scale
        nearby = self._window_sum(ratio)
        nearby *= x
        nearby *= 2 * self.alpha * self.beta
        self.xp.subtract(weighted, nearby, out=dx)

    def _window_sum(self, values: Any) -> Any:
        """Return the sum over the window around each element, in a buffer that the next call overwrites."""
        for axis in self.axes:
            sums = self.buffer(f"sums {axis}", values.shape, values.dtype)
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
