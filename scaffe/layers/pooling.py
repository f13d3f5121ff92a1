"""Pooling: the maximum, the mean, or a random value of each window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.blob import Shape
from scaffe.context import TRAIN
from scaffe.layers.layer import Blobs, Layer, register
from scaffe.layers.pooling_axis import Axis
from scaffe.layers.stochastic_pooling import RandomValue, WeightedMean


class Pooling(Layer):
    """y = the maximum (MAX), the mean (AVE) or a random element (STOCHASTIC) of each window of x.

    x (N x C x H x W), y (N x C x pooled H x pooled W). As in Caffe, pooled sizes are rounded up unless `round_mode` is
    FLOOR, windows are clipped at the edge, and AVE divides by the window's area including the padding, but not what
    lies beyond the padding. MAX may have a second top: the index h * W + w of each maximum, of equal values the first.

    STOCHASTIC chooses an element with probability proportional to its value, so x must not be negative; in the TEST
    phase y is the mean with these probabilities. The choice does not depend on the number of ranks. Zeiler and Fergus
    2013, section 3.
    """

    tops = (1, 2)

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.pooling_param
        if len(bottom[0].shape) != 4:
            raise self.shape_error(f"needs a bottom with 4 axes (N x C x H x W), got shape {bottom[0].shape}")
        if len(top) > 1 and param.pool != param.MAX:
            raise self.error("only pool: MAX has a second top, the index of each window's largest value")
        self.kernel = None if param.global_pooling else self._pair("kernel", "kernel_size")
        self.stride, self.pad = self._pair("stride", "stride"), self._pair("pad", "pad")
        self._check_fields()
        if param.pool == param.STOCHASTIC and any(self.pad):
            raise self.error(f"pool: STOCHASTIC takes no padding, got pad {self.pad}")

    def _pair(self, name: str, single: str) -> tuple[int, int]:
        """Return a field of pooling_param for both axes, from the field or its _h and _w."""
        param = self.param.pooling_param
        pair = f"{name}_h", f"{name}_w"
        given = [field for field in pair if param.HasField(field)]
        if not given:
            return getattr(param, single), getattr(param, single)
        if param.HasField(single) or len(given) < 2:
            raise self.error(f"pooling_param needs either {single} or both {pair[0]} and {pair[1]}")
        return getattr(param, pair[0]), getattr(param, pair[1])

    def _check_fields(self) -> None:
        param = self.param.pooling_param
        if self.kernel is None:
            sizes = [f for f in ("kernel_size", "kernel_h", "kernel_w") if param.HasField(f)]
            if sizes or self.stride != (1, 1) or self.pad != (0, 0):
                raise self.error("global_pooling takes the whole picture: leave out kernel sizes, stride and pad")
        elif 0 in self.kernel + self.stride:
            raise self.error(f"kernel {self.kernel} with stride {self.stride}; give at least 1 for each axis")
        elif any(p >= k for p, k in zip(self.pad, self.kernel, strict=True)):
            raise self.error(f"pad {self.pad} must be smaller than the kernel {self.kernel}")

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        shape = bottom[0].shape
        if len(shape) != 4:
            raise self.shape_error(f"needs a bottom with 4 axes (N x C x H x W), got shape {shape}")
        size, kernel = shape[2:], self.kernel or shape[2:]
        out = self._pooled(shape, kernel)
        axes = [Axis(*numbers) for numbers in zip(size, kernel, self.stride, self.pad, out, strict=True)]
        self.method = self._method()(self, *axes)
        for blob in top:
            blob.reshape(*shape[:2], *out)

    def _method(self) -> type:
        pool, param = self.param.pooling_param.pool, self.param.pooling_param
        if pool == param.STOCHASTIC:
            return RandomValue if self.context.phase == TRAIN else WeightedMean
        return _MaxPooling if pool == param.MAX else _AveragePooling

    def _pooled(self, shape: Shape, kernel: Sequence[int]) -> tuple[int, int]:
        """Return the number of windows on each axis, by Caffe's rule."""
        param = self.param.pooling_param
        out = []
        for n, k, s, p in zip(shape[2:], kernel, self.stride, self.pad, strict=True):
            room = n + 2 * p - k
            count = (room // s if param.round_mode == param.FLOOR else -(-room // s)) + 1
            if any(self.pad) and (count - 1) * s >= n + p:
                count -= 1
            if count < 1:
                raise self.shape_error(f"kernel {kernel} is larger than the bottom {shape} with pad {self.pad}")
            if (count - 1) * s - p >= n:
                raise self.shape_error(
                    f"the last window of kernel {kernel}, stride {self.stride} and pad {self.pad} lies wholly outside "
                    f"the bottom {shape}; set round_mode: FLOOR, or a stride no larger than the kernel"
                )
            out.append(count)
        return out[0], out[1]

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        self.method.forward(_pictures(bottom[0].array), _pictures(top[0].array))
        if len(top) > 1:
            top[1].array[...] = self.method.winners().reshape(top[1].shape)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0]:
            self.method.backward(_pictures(top[0].diff_array), _pictures(bottom[0].diff_array))


class _MaxPooling:
    """The maximum of each window, and its place: the element's index in the window, row by row."""

    def __init__(self, layer: Layer, rows: Axis, columns: Axis):
        xp = layer.xp
        self.layer, self.rows, self.columns = layer, rows, columns
        self.place_type = np.min_scalar_type(rows.kernel * columns.kernel)
        # The first element of each window that is a pixel is the maximum until a larger value is found.
        first = np.maximum(0, -rows.start)[:, None] * columns.kernel + np.maximum(0, -columns.start)
        self.first = xp.asarray(first.astype(self.place_type))
        # A pixel's index h * W + w is the window's origin plus the offset of the element.
        self.origin = xp.asarray(rows.start[:, None] * columns.size + columns.start)
        offset = np.arange(rows.kernel)[:, None] * columns.size + np.arange(columns.kernel)
        self.offset = xp.asarray(offset.reshape(-1))

    def forward(self, x: Any, y: Any) -> None:
        """Compute y, looping over the elements of the kernel; keep the place of each window's first maximum."""
        xp, buffer = self.layer.xp, self.layer.buffer
        self.place = buffer("place", y.shape, self.place_type)
        candidate, wins = buffer("candidate", y.shape, x.dtype), buffer("wins", y.shape, bool)
        won = buffer("won", y.shape, self.place_type)
        self.place[...] = self.first
        y[...] = -np.inf
        for i, (out_rows, in_rows) in enumerate(self.rows.places):
            for j, (out_columns, in_columns) in enumerate(self.columns.places):
                candidate[...] = -np.inf
                candidate[:, out_rows, out_columns] = x[:, in_rows, in_columns]
                xp.greater(candidate, y, out=wins)
                xp.maximum(candidate, y, out=y)
                # Places rise in this loop: the last one that was larger is the maximum of those that were larger.
                xp.multiply(wins, self.place_type.type(i * self.columns.kernel + j), out=won)
                xp.maximum(self.place, won, out=self.place)

    def winners(self) -> Any:
        """Return the index h * W + w of each window's maximum."""
        return self.layer.xp.take(self.offset, self.place) + self.origin

    def backward(self, dy: Any, dx: Any) -> None:
        """Overwrite dx: each window adds its gradient to the pixel of its maximum."""
        xp = self.layer.xp
        pixels = self.winners() + (xp.arange(len(dx)) * dx[0].size)[:, None, None]
        dx[...] = xp.bincount(pixels.reshape(-1), weights=dy.reshape(-1), minlength=dx.size).reshape(dx.shape)


class _AveragePooling:
    """The mean of each window: sums over rows, then over columns, divided by the window's area."""

    def __init__(self, layer: Layer, rows: Axis, columns: Axis):
        self.layer, self.rows, self.columns = layer, rows, columns
        self.area = layer.xp.asarray(np.outer(rows.length, columns.length).astype(np.float32))

    def forward(self, x: Any, y: Any) -> None:
        sums = self._sums(x)
        sums[...] = y[...] = 0
        for out, pixels in self.rows.places:
            sums[:, out] += x[:, pixels]
        for out, pixels in self.columns.places:
            y[:, :, out] += sums[:, :, pixels]
        y /= self.area

    def backward(self, dy: Any, dx: Any) -> None:
        """Overwrite dx: each window adds its gradient, divided by its area, to its pixels."""
        sums = self._sums(dx)
        share = dy / self.area
        sums[...] = dx[...] = 0
        for out, pixels in self.columns.places:
            sums[:, :, pixels] += share[:, :, out]
        for out, pixels in self.rows.places:
            dx[:, pixels] += sums[:, out]

    def _sums(self, x: Any) -> Any:
        """Return the buffer for sums over rows, (N C x pooled H x W)."""
        return self.layer.buffer("sums", (len(x), self.rows.out, self.columns.size), x.dtype)


def _pictures(array: Any) -> Any:
    """Return (N x C x H x W) as (N C x H x W), a view."""
    return array.reshape(-1, *array.shape[2:])


register("Pooling", Pooling)
