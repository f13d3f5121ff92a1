"""Pooling by kernels: the maximum or the mean of each window."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.engines.cuda.engine import engine_of
from scaffe.engines.cuda.launcher import divisor
from scaffe.layers.layer import register
from scaffe.layers.pooling import Pooling
from scaffe.layers.pooling_axis import Axis


class _PoolingKernels:
    """Windows over images (N x C x H x W), with the interface of the reference's methods."""

    def __init__(self, layer: Pooling, rows: Axis, columns: Axis):
        self.layer, self.engine = layer, engine_of(layer)
        self.axes = [n for a in (rows, columns) for n in (a.size, a.out, a.kernel, a.stride, a.pad, divisor(a.stride))]
        self.by_windows = [divisor(a.out) for a in (rows, columns)]
        self.by_pixels = [divisor(a.size) for a in (rows, columns)]

    def launch(self, kernel: str, count: int, *arrays: Any) -> None:
        """Launch a kernel of pooling.cu with one thread per window, backward per pixel."""
        divisors = self.by_pixels if kernel.endswith("back") else self.by_windows
        self.engine.over("pooling", kernel, count, *arrays, *self.axes, *divisors)


class MaxKernels(_PoolingKernels):
    """The maximum of each window, and the index h * W + w of the first pixel that has it."""

    def forward(self, x: Any, y: Any) -> None:
        self.winner = self.layer.buffer("winner", y.shape, np.int32)
        self.launch("pool_max", y.size, x, y, self.winner)

    def winners(self) -> Any:
        return self.winner

    def backward(self, dy: Any, dx: Any) -> None:
        self.launch("pool_max_back", dx.size, dy, self.winner, dx)


class MeanKernels(_PoolingKernels):
    """The mean of each window."""

    def forward(self, x: Any, y: Any) -> None:
        self.launch("pool_mean", y.size, x, y)

    def backward(self, dy: Any, dx: Any) -> None:
        self.launch("pool_mean_back", dx.size, dy, dx)


class CudaPooling(Pooling):
    """Pooling: MAX and AVE; the reference form for STOCHASTIC."""

    @property
    def capturable(self) -> bool:  # type: ignore[override]
        param = self.param.pooling_param
        return param.pool in (param.MAX, param.AVE)

    def _method(self) -> type:
        param = self.param.pooling_param
        return {param.MAX: MaxKernels, param.AVE: MeanKernels}.get(param.pool) or super()._method()


register("Pooling", CudaPooling, engine="cuda")
