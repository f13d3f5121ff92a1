"""The gradient of a convolution's bottom as sums of products of matrices, where channels fill no whole vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.blob import Shape, Values
from scaffe.engines.onednn.column_product import check_windows
from scaffe.engines.onednn.descriptors import NoFastForm
from scaffe.engines.onednn.pooled_memory import PooledMemory, pooled
from scaffe.engines.onednn.primitives import Memory, Onednn
from scaffe.engines.onednn.sgemm import MadeFor, Sgemm
from scaffe.engines.onednn.strided_copies import StridedCopies, in_memory
from scaffe.engines.onednn.weights import WeightForm

FEWEST = 5  # rows of filters: with fewer the library is as fast
MOST = 10 << 20  # bytes of rows: more are slow to add to


class RowsSum:
    """The gradient of a convolution's bottom (N x C x H x W), of filters k x k that move row by row.

    Bottom and top (N x F x P x Q) are those of a ColumnProduct. `tops` (P x N x Q x F) is dy with its rows outermost,
    `rows` (H x N x Q x k C) what each row of the bottom gets from the windows of each column of the top. Row i of the
    filters adds tops W_i to the rows from i to i + P, which are one matrix; then the Q columns are added up. So a k-th
    of col2im's numbers is added by copies, the others by products. Raise NoFastForm as ColumnProduct does.
    """

    def __init__(self, engine: Onednn, src: Shape, dst: Shape, layer: Any):
        window = layer.window
        check_windows(engine, src, dst, window)
        if window.stride[0] != 1 or window.kernel[0] < FEWEST:
            raise NoFastForm("windows that pass over rows, or have few")
        (images, channels, height, width), (outputs, down, across) = src, dst[1:]
        row, line = window.kernel[1] * channels, across * outputs  # numbers of a window's row and of a row of the top
        self.engine, self.down, self.filters = engine, down, (outputs, window.kernel[0], row)
        if 4 * height * images * across * row > MOST:
            raise NoFastForm("rows that take much memory")
        self.dx = pooled(engine, engine.channels_last(src))
        self.rows = PooledMemory(engine, engine.plain((height, images * across, row)))
        self.tops = PooledMemory(engine, engine.plain((down, images * across, outputs)))
        self.weights = WeightForm(layer, engine.channels_last(layer.blobs[0].shape), brief=True)
        turned = (images, down, line), (down * line, line, 1), (line, images * line, 1)
        self._turn = StridedCopies(engine, turned, [(0, 0)])
        in_rows, in_bottom = (images * across * row, across * row, 1), (width * channels, height * width * channels, 1)
        places = [(q * row, q * window.stride[1] * channels) for q in range(across)]
        self._add = StridedCopies(engine, ((height, images, row), in_rows, in_bottom), places, add=True)
        self._products = MadeFor(self._multiply)

    def of(self, dy: Memory, weights: Values) -> Memory:
        """Return the bottom's gradient, from the top's."""
        rows, tops, dx = (memory.acquire().buffer for memory in (self.rows, self.tops, self.dx))
        self._turn.run(dy.buffer, tops)
        for product, add in self._products(tops, self.weights.fetch(weights).buffer, rows):
            product.run(add)
        dx.fill(0.0)
        self._add.run(rows, dx)
        self.rows.release()
        self.tops.release()
        return self.dx

    def _multiply(self, tops: np.ndarray, weights: np.ndarray, rows: np.ndarray) -> list[tuple[Sgemm, bool]]:
        """Return the products of each row of the filters, and whether they add: all but the first end in a new row."""
        (outputs, count, row), down = self.filters, self.down
        lines, filters = rows.reshape(down + count - 1, -1, row), in_memory(weights).reshape(self.filters)
        dy = tops.reshape(down, -1, outputs)
        spans = [(0, 0, down, False)]
        for i in range(1, count):
            spans += [(i, 0, down - 1, True), (i, down - 1, down, False)]
        return [
            (self._product(dy[start:end], filters[:, i], lines[i + start : i + end]), add)
            for i, start, end, add in spans
            if start < end
        ]

    def _product(self, dy: np.ndarray, weights: np.ndarray, rows: np.ndarray) -> Sgemm:
        return Sgemm(self.engine, dy.reshape(-1, dy.shape[-1]), weights, rows.reshape(-1, rows.shape[-1]))
