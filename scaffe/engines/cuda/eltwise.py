"""Eltwise by kernels: two bottoms in one launch, and one more for each further bottom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.blob import Blob
from scaffe.engines.cuda.chain import Added, Normalised, Unrectified, deferred, raw, values_to_defer
from scaffe.engines.cuda.engine import engine_of
from scaffe.engines.cuda.forms import arrays, data, diff, kind, reading, writing
from scaffe.engines.cuda.relu import fusable_relu
from scaffe.engines.cuda.typed_blobs import TypedLayer
from scaffe.layers import eltwise
from scaffe.layers.layer import Blobs, register


class _Sum(eltwise.EltwiseSum):
    def forward(self, xs: list[Any], y: Any) -> None:
        coeffs = self.layer.coeffs or [1] * len(xs)
        of_sum, total = float(coeffs[0]), xs[0]
        for x, coeff in zip(xs[1:], coeffs[1:], strict=True):
            _over(self, "eltwise_sum", y, total, of_sum, x, float(coeff), y)
            of_sum, total = 1.0, y

    def backward(self, i: int, xs: list[Any], y: Any, dy: Any, dx: Any) -> None:
        _over(self, "eltwise_scaled", dx, dy, float(self.layer.coeffs[i] if self.layer.coeffs else 1), dx)


class _Product(eltwise.EltwiseProduct):
    def forward(self, xs: list[Any], y: Any) -> None:
        product = xs[0]
        for x in xs[1:]:
            _over(self, "eltwise_product", y, product, x, y)
            product = y

    def backward(self, i: int, xs: list[Any], y: Any, dy: Any, dx: Any) -> None:
        if not self.layer.stable:
            super().backward(i, xs, y, dy, dx)
            return
        product = dy
        for x in xs[:i] + xs[i + 1 :]:
            _over(self, "eltwise_product", dx, product, x, dx)
            product = dx


class _Max(eltwise.EltwiseMax):
    def forward(self, xs: list[Any], y: Any) -> None:
        self.winner = self.layer.buffer("winner", y.shape, np.int32)
        _over(self, "eltwise_max", y, xs[0], xs[1], y, self.winner)
        for i, x in enumerate(xs[2:], 2):
            _over(self, "eltwise_max_next", y, x, i, y, self.winner)

    def backward(self, i: int, xs: list[Any], y: Any, dy: Any, dx: Any) -> None:
        _over(self, "eltwise_max_back", dy, dy, self.winner, i, dx)


def _over(operation: Any, kernel: str, y: Any, *arguments: Any) -> None:
    engine_of(operation.layer).over("eltwise", f"{kernel}{kind(y)}", y.size, *arguments, each=16 // y.itemsize)


class CudaEltwise(TypedLayer, eltwise.Eltwise):
    """Eltwise: SUM, PROD and MAX of bottoms of one shape. Normalised values are added as they are computed."""

    capturable = True

    operations = (_Product, _Sum, _Max)
    _added: Added | None = None

    @property
    def adds(self) -> bool:
        """Whether it adds two bottoms, both with coefficient 1."""
        param = self.param.eltwise_param
        return param.operation == param.SUM and len(self.param.bottom) == 2 and set(self.coeffs) <= {1}

    def typed_blobs(self, bottom: Blobs, top: Blobs) -> list[Blob]:
        more_than_two = len(bottom) > 2  # whose sums and products are rounded once only in float32
        return [] if not self.stable or more_than_two else [*bottom, *top]

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        waiting = deferred(data(bottom[1]), Normalised) if self.adds else None
        if waiting and data(bottom[1]).is_last == data(bottom[0]).is_last == data(top[0]).is_last:
            self._add(waiting, bottom, top)
        else:
            _, (*xs, y) = arrays([data(blob) for blob in bottom], [data(top[0])])
            self.operation.forward(xs, y)

    def _add(self, normalised: Normalised, bottom: Blobs, top: Blobs) -> None:
        other, y = reading(data(bottom[0])), writing(data(top[0]))
        if self._added is None or self._added.normalised is not normalised or self._added.other is not other:
            self._added = Added(normalised, other)  # the same one in each pass over the same blobs
        if fusable_relu(self) and values_to_defer(data(top[0]), self):
            top[0].values.defer(self._added)
        else:
            self._added.compute(y)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        unrectified = deferred(diff(top[0]), Unrectified)
        if unrectified and self.adds and all(propagate_down):
            y, dy, targets = reading(unrectified.top), raw(diff(top[0])), [writing(diff(blob)) for blob in bottom]
            _over(self.operation, "sum_back_unrectified", y, y, dy, *targets)
            return
        downs = [i for i, down in enumerate(propagate_down) if down]
        read = [*map(data, bottom), data(top[0]), diff(top[0])]
        if self.adds:  # whose bottoms' values are not read: they may be left deferred
            read = read[2:]
        _, found = arrays(read, [diff(bottom[i]) for i in downs])
        (*xs, y, dy), targets = found[: len(read)], found[len(read) :]
        for i, dx in zip(downs, targets, strict=True):
            self.operation.backward(i, xs, y, dy, dx)


register("Eltwise", CudaEltwise, engine="cuda")
