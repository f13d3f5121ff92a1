"""Stochastic pooling: a random element of each window in training, the expected value in tests."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from scaffe.layers.layer import Layer
from scaffe.layers.pooling_axis import Axis


class _Places:
    """Iterate over a window's elements row by row: which windows have a pixel there, and these pixels."""

    def __init__(self, layer: Layer, rows: Axis, columns: Axis):
        self.layer = layer
        pairs = product(rows.places, columns.places)
        self.places = [((..., r_out, c_out), (..., r_in, c_in)) for (r_out, r_in), (c_out, c_in) in pairs]

    def sums(self, values: Any, out: Any) -> Any:
        """Write the sum of each window into `out` and return it; the order of addition is that of the elements."""
        out[...] = 0
        for windows, pixels in self.places:
            out[windows] += values[pixels]
        return out


class RandomValue(_Places):
    """A random element of each window: the first whose running sum reaches a random fraction of the window's sum."""

    def forward(self, x: Any, y: Any) -> None:
        buffer = self.layer.buffer
        self.chosen = buffer("chosen", y.shape, np.intp)  # the element's index in the window
        limit = self.sums(x, buffer("limit", y.shape, x.dtype))
        limit *= self.layer.draw_uniform(y.shape)
        running, missing = buffer("running", y.shape, x.dtype), buffer("missing", y.shape, bool)
        running[...] = y[...] = 0
        self.chosen[...], missing[...] = -1, True
        for i, (windows, pixels) in enumerate(self.places):
            running[windows] += x[pixels]
            found = missing[windows] & (running[windows] >= limit[windows])
            self.chosen[windows][found] = i
            self.layer.xp.copyto(y[windows], x[pixels], where=found)
            missing[windows][found] = False

    def backward(self, dy: Any, dx: Any) -> None:
        """Overwrite dx: each window adds its gradient to its chosen element."""
        dx[...] = 0
        for i, (windows, pixels) in enumerate(self.places):
            dx[pixels] += dy[windows] * (self.chosen[windows] == i)


class WeightedMean(_Places):
    """The expected value of RandomValue: sum of x^2 / sum of x over the window, 0 where all x are 0."""

    def forward(self, x: Any, y: Any) -> None:
        self.x, buffer = x, self.layer.buffer
        self.sum = self.sums(x, buffer("sum", y.shape, x.dtype))
        self.sum += np.finfo(np.float32).tiny
        self.mean = self.sums(x * x, buffer("mean", y.shape, x.dtype))
        self.mean /= self.sum
        y[...] = self.mean

    def backward(self, dy: Any, dx: Any) -> None:
        dx[...] = 0
        for windows, pixels in self.places:
            dx[pixels] += dy[windows] * (2 * self.x[pixels] - self.mean[windows]) / self.sum[windows]
