"""Pooling by kernels: the maximum or the mean of each window."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from scaffe.blob import Blob, Shape
from scaffe.engines.cuda.engine import engine_of
from scaffe.engines.cuda.forms import arrays, data, diff
from scaffe.engines.cuda.launcher import divisor
from scaffe.engines.cuda.layouts import pack_of
from scaffe.engines.cuda.typed_blobs import TypedLayer
from scaffe.layers.layer import Blobs, register
from scaffe.layers.pooling import Pooling
from scaffe.layers.pooling_axis import Axis

STRIP = 4  # rows of a thread's strip; as in pooling.cu
PLACES = 256  # in a window, at most, where a byte holds the maximum's
KNOWN = {(3, 2): 1, (2, 2): 1, (3, 1): 4}  # rows of a thread's windows, by size and stride; KNOWN of pooling_last.cu
BLOCK = 2  # rows and columns of a thread's pixels behind such windows; there too


class _PoolingKernels:
    """Windows over images (N x C x H x W), with the interface of the reference's methods."""

    def __init__(self, layer: Pooling, rows: Axis, columns: Axis):
        self.layer, self.engine = layer, engine_of(layer)
        self.axes = [n for a in (rows, columns) for n in (a.size, a.out, a.kernel, a.stride, a.pad, divisor(a.stride))]
        self.rows, self.columns = rows, columns

    def forward_over(self, kernel: str, *arrays: Any) -> None:
        """Launch a kernel of pooling.cu over the windows; windows that overlap much are computed in strips."""
        strip = STRIP if self.rows.stride == 1 < self.rows.kernel else 1
        self._launch(f"{kernel}_{strip}", len(arrays[0]), self.rows.out, self.columns.out, strip, *arrays)

    def backward_over(self, kernel: str, *arrays: Any) -> None:
        """Launch a kernel of pooling.cu over the pixels."""
        self._launch(kernel, len(arrays[0]), self.rows.size, self.columns.size, STRIP, *arrays)

    def _launch(self, kernel: str, pictures: int, rows: int, columns: int, strip: int, *arrays: Any) -> None:
        strips = -(-rows // strip)
        divisors = divisor(strips), divisor(columns)
        self.engine.over("pooling", kernel, pictures * strips * columns, *arrays, *self.axes, *divisors)


class MaxKernels(_PoolingKernels):
    """The maximum of each window, and the index h * W + w of the first pixel that has it."""

    def forward(self, x: Any, y: Any) -> None:
        self.winner = self.layer.buffer("winner", y.shape, np.int32)
        self.forward_over("pool_max", x, y, self.winner)

    def winners(self) -> Any:
        return self.winner

    def backward(self, dy: Any, dx: Any) -> None:
        self.backward_over("pool_max_back", dy, self.winner, dx)


class MeanKernels(_PoolingKernels):
    """The mean of each window."""

    def forward(self, x: Any, y: Any) -> None:
        self.forward_over("pool_mean", x, y)

    def backward(self, dy: Any, dx: Any) -> None:
        self.backward_over("pool_mean_back", dy, dx)


class CudaPooling(TypedLayer, Pooling):
    """Pooling: MAX and AVE; the reference form for STOCHASTIC."""

    @property
    def capturable(self) -> bool:  # type: ignore[override]
        param = self.param.pooling_param
        return param.pool in (param.MAX, param.AVE)

    def typed_blobs(self, bottom: Blobs, top: Blobs) -> list[Blob]:
        of_pixels = self.param.pooling_param.pool == self.param.pooling_param.AVE
        area = prod(self.kernel or bottom[0].shape[2:])
        return [*bottom, *top] if self.capturable and len(top) == 1 and (of_pixels or area <= PLACES) else []

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        is_last, (x, y) = arrays([data(bottom[0])], [data(top[0])])
        if not is_last:
            super().forward(bottom, top)
        elif isinstance(self.method, MaxKernels):
            self._launch("pool_max", y, x, y, self._places(y.shape))
        else:
            self._launch("pool_mean", y, x, y)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        is_last, (dy, dx) = arrays([diff(top[0])], [diff(bottom[0])])
        if not is_last:
            super().backward(top, propagate_down, bottom)
        elif isinstance(self.method, MaxKernels):
            self._launch("pool_max_back", dx, dy, self._places(dy.shape), dx)
        else:
            self._launch("pool_mean_back", dx, dy, dx)

    def _places(self, shape: Shape) -> Any:
        """Return the places of the maxima in their windows, for blobs that lie channels last."""
        return self.buffer("places", shape, np.uint8)

    def _launch(self, kernel: str, over: Any, *arrays: Any) -> None:
        """Launch a kernel of pooling_last.cu over the places of an array (N x H x W x C)."""
        ending, many = pack_of(over)
        images, height, width, channels = over.shape
        groups = channels // many
        window = self._known_window(groups) if many > 1 else None
        if window and kernel.endswith("back"):
            height, width = -(-(height + self.pad[0]) // BLOCK), -(-(width + self.pad[1]) // BLOCK)
        elif window:
            height = -(-height // KNOWN[window])
        name = "_".join([kernel, *map(str, window or ())]) + ending
        count = images * height * width * groups
        divisors = divisor(groups), divisor(height), divisor(width)
        engine_of(self).over("pooling_last", name, count, *arrays, *self.method.axes, groups, *divisors)

    def _known_window(self, groups: int) -> tuple[int, int] | None:
        """Return size and stride of windows that have kernels of their own, along both axes; `groups` are the packs."""
        rows, columns = self.method.rows, self.method.columns
        places = max(rows.size, rows.out) * max(columns.size, columns.out) * groups
        window = rows.kernel, rows.stride
        alike = window == (columns.kernel, columns.stride)
        return window if alike and window in KNOWN and places < 2**31 else None

    def _method(self) -> type:
        param = self.param.pooling_param
        return {param.MAX: MaxKernels, param.AVE: MeanKernels}.get(param.pool) or super()._method()


register("Pooling", CudaPooling, engine="cuda")
