"""The passes of a convolution by columns and float32 products, one image at a time: what cuDNN's plans must agree with.

It shares nothing with the plans, and takes the memory of one image's columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

import numpy as np

from scaffe.engines.cuda.cudnn import CORRELATE, IMAGES, MAPS, SPREAD, WEIGH, WEIGHTS, Pass, Problem
from scaffe.engines.cuda.launcher import Launcher
from scaffe.engines.cuda.layouts import BF16
from scaffe.engines.cuda.products import Products

Arrays = Mapping[str, Any]  # by role


class ColumnPasses:
    """The passes of one problem."""

    def __init__(self, engine: Launcher, problem: Problem):
        self.xp, self.problem, self.multiply = engine.gpu.xp, problem, Products(engine.gpu, "float32")
        _, self.channels, *size = problem.images
        self.filters, self.group_channels, *kernel = problem.weights
        self.groups, self.out = self.channels // self.group_channels, problem.maps[2:]
        padded = [n + 2 * p for n, p in zip(size, problem.pad, strict=True)]
        self.padded = self.xp.zeros((self.channels, *padded), np.float32)
        self.inner = (slice(None), *(slice(p, p + n) for n, p in zip(size, problem.pad, strict=True)))
        self.columns = self.xp.zeros((self.channels, prod(kernel), *self.out), np.float32)
        self.matrix = self.columns.reshape(self.groups, -1, prod(self.out))
        self.kernel = kernel

    def result(self, one: Pass, arrays: Arrays, is_last: bool, bias: Any = None) -> Any:
        """Return the result of a pass in float32, with `bias` (channels) if given.

        The arrays, float32 or bfloat16, and the result are all channels first, or all channels last.
        """
        compute = {CORRELATE: self._correlate, SPREAD: self._spread, WEIGH: self._weigh}[one]
        shape = getattr(self.problem, one.result)
        found = self.xp.zeros((shape[0], *shape[2:], shape[1]) if is_last else shape, np.float32)
        compute({role: _Rows(self.xp, arrays[role], is_last) for _, role in one.operands}, _first(found, is_last))
        if bias is not None:
            pixels = _first(found, is_last)
            pixels += bias.reshape(-1, *[1] * len(self.out))
        return found

    def _correlate(self, rows: Mapping[str, _Rows], found: Any) -> None:
        weights, maps = self._weights(rows), self._grouped(self.xp.zeros((self.filters, *self.out), np.float32))
        for i in range(len(found)):
            self._unfold(rows[IMAGES].of(i))
            self.multiply(weights, self.matrix, maps)
            found[i] = maps.reshape(found.shape[1:])

    def _spread(self, rows: Mapping[str, _Rows], found: Any) -> None:
        weights = self._weights(rows).swapaxes(1, 2)
        for i in range(len(found)):
            self.multiply(weights, self._grouped(rows[MAPS].of(i)), self.matrix)
            self.padded[...] = 0.0
            for place, under in self._places():
                pixels = self.padded[under]
                pixels += self.columns[:, place]
            found[i] = self.padded[self.inner]

    def _weigh(self, rows: Mapping[str, _Rows], found: Any) -> None:
        total = self.xp.zeros((self.groups, self.filters // self.groups, self.matrix.shape[1]), np.float32)
        for i in range(self.problem.images[0]):
            self._unfold(rows[IMAGES].of(i))
            self.multiply(self._grouped(rows[MAPS].of(i)), self.matrix.swapaxes(1, 2), total, add=True)
        found[...] = total.reshape(found.shape)

    def _unfold(self, image: Any) -> None:
        """Write what of an image lies under each place of the kernel into the columns."""
        self.padded[self.inner] = image
        for place, under in self._places():
            self.columns[:, place] = self.padded[under]

    def _places(self) -> Iterator[tuple[int, Any]]:
        """Iterate over the places in the kernel, each with the padded pixels under it."""
        p = self.problem
        for number, place in enumerate(product(*map(range, self.kernel))):
            axes = zip(place, self.out, p.stride, p.dilation, strict=True)
            yield number, (slice(None), *(slice(k * d, k * d + s * (n - 1) + 1, s) for k, n, s, d in axes))

    def _weights(self, rows: Mapping[str, _Rows]) -> Any:
        filters = [rows[WEIGHTS].of(i).reshape(1, -1) for i in range(self.filters)]
        return self._grouped(self.xp.concatenate(filters))

    def _grouped(self, array: Any) -> Any:
        return array.reshape(self.groups, self.filters // self.groups, -1)


class _Rows:
    """The rows of an array, images or filters: each float32, channels first and in C order."""

    def __init__(self, xp: Any, array: Any, is_last: bool):
        self.xp, self.array, self.is_last = xp, array, is_last

    def of(self, i: int) -> Any:
        row = float32_of(self.xp, self.array[i : i + 1])
        first = _first(row, self.is_last)[0]
        copy = self.xp.empty(first.shape, np.float32)
        copy[...] = first
        return copy


def _first(array: Any, is_last: bool) -> Any:
    """Return a view of an array with the channels on axis 1."""
    axes = len(array.shape)
    return array.transpose(0, axes - 1, *range(1, axes - 1)) if is_last else array


def float32_of(xp: Any, array: Any) -> Any:
    """Return an array of float32, or of the bits of bfloat16, in float32."""
    if array.dtype != BF16:
        return array
    halves = xp.zeros((array.size, 2), BF16)
    halves[:, 1] = array.reshape(-1)
    return halves.view(np.float32).reshape(array.shape)
