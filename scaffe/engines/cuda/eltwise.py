"""Eltwise by kernels: two bottoms in one launch, and one more for each further bottom."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.engines.cuda.engine import engine_of
from scaffe.layers import eltwise
from scaffe.layers.layer import register


class _Sum(eltwise.EltwiseSum):
    def forward(self, xs: list[Any], y: Any) -> None:
        coeffs = self.layer.coeffs or [1] * len(xs)
        of_sum, total = float(coeffs[0]), xs[0]
        for x, coeff in zip(xs[1:], coeffs[1:], strict=True):
            _over(self, "eltwise_sum", y, total, of_sum, x, float(coeff), y)
            of_sum, total = 1.0, y


class _Product(eltwise.EltwiseProduct):
    def forward(self, xs: list[Any], y: Any) -> None:
        product = xs[0]
        for x in xs[1:]:
            _over(self, "eltwise_product", y, product, x, y)
            product = y


class _Max(eltwise.EltwiseMax):
    def forward(self, xs: list[Any], y: Any) -> None:
        self.winner = self.layer.buffer("winner", y.shape, np.int32)
        _over(self, "eltwise_max", y, xs[0], xs[1], y, self.winner)
        for i, x in enumerate(xs[2:], 2):
            _over(self, "eltwise_max_next", y, x, i, y, self.winner)

    def backward(self, i: int, xs: list[Any], y: Any, dy: Any, dx: Any) -> None:
        _over(self, "eltwise_max_back", dy, dy, self.winner, i, dx)


def _over(operation: Any, kernel: str, y: Any, *arguments: Any) -> None:
    engine_of(operation.layer).over("eltwise", kernel, y.size, *arguments, each=4)


class CudaEltwise(eltwise.Eltwise):
    """Eltwise: SUM, PROD and MAX of bottoms of one shape."""

    capturable = True

    operations = (_Product, _Sum, _Max)


register("Eltwise", CudaEltwise, engine="cuda")
