"""Eltwise: the elementwise product, sum or maximum of blobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.layers.layer import ANY, Blobs, Layer, register

Arrays = list[Any]


class Eltwise(Layer):
    """y = the product (PROD), the sum weighted by `coeff` (SUM) or the maximum (MAX) of the bottoms' elements.

    Bottoms and top have the same shape. MAX passes the gradient to one bottom; of equal values, to the second bottom
    if it is one of them, else to the first of them, as in Caffe. PROD's derivative is the product of the other
    bottoms, or y / x with `stable_prod_grad: false`, which is NaN at x = 0.
    """

    bottoms = (2, ANY[1])
    operations: tuple[type, ...]  # indexed by EltwiseParameter.EltwiseOp

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.eltwise_param
        self.operation: Any = self.operations[param.operation](self)
        self.stable = param.stable_prod_grad
        self.coeffs = list(param.coeff)
        if self.coeffs and param.operation != param.SUM:
            raise self.error("eltwise_param has coeff, which only operation: SUM takes")
        if len(self.coeffs) not in (0, len(bottom)):
            raise self.error(
                f"eltwise_param has {len(self.coeffs)} coeff for {len(bottom)} bottoms; give one per bottom"
            )

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        for blob in bottom[1:]:
            if blob.shape != bottom[0].shape:
                raise self.shape_error(f"bottoms have shapes {bottom[0].shape} and {blob.shape}; give all the same")
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        self.operation.forward([blob.array for blob in bottom], top[0].array)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        values = [blob.array for blob in bottom]
        for i, (blob, down) in enumerate(zip(bottom, propagate_down, strict=True)):
            if down:
                self.operation.backward(i, values, top[0].array, top[0].diff_array, blob.diff_array)


class EltwiseProduct:
    """y = x_0 x_1 ..."""

    def __init__(self, layer: Eltwise):
        self.layer = layer

    def forward(self, xs: Arrays, y: Any) -> None:
        y[...] = xs[0]
        for x in xs[1:]:
            y *= x

    def backward(self, i: int, xs: Arrays, y: Any, dy: Any, dx: Any) -> None:
        if self.layer.stable:
            dx[...] = dy
            for x in xs[:i] + xs[i + 1 :]:
                dx *= x
        else:
            self.layer.xp.divide(y, xs[i], out=dx)
            dx *= dy


class EltwiseSum:
    """y = coeff_0 x_0 + coeff_1 x_1 + ..., each coeff 1 by default."""

    def __init__(self, layer: Eltwise):
        self.layer = layer

    def forward(self, xs: Arrays, y: Any) -> None:
        coeffs = self.layer.coeffs or [1] * len(xs)
        self.layer.xp.multiply(xs[0], coeffs[0], out=y)
        for x, coeff in zip(xs[1:], coeffs[1:], strict=True):
            y += x if coeff == 1 else coeff * x

    def backward(self, i: int, xs: Arrays, y: Any, dy: Any, dx: Any) -> None:
        self.layer.xp.multiply(dy, self.layer.coeffs[i] if self.layer.coeffs else 1, out=dx)


class EltwiseMax:
    """y = max(x_0, x_1, ...); `winner` is the index of the bottom that has the maximum."""

    def __init__(self, layer: Eltwise):
        self.layer = layer

    def forward(self, xs: Arrays, y: Any) -> None:
        xp = self.layer.xp
        self.winner = self.layer.buffer("winner", y.shape, int)
        y[...] = xs[1]
        self.winner[...] = 1
        for i, x in enumerate(xs):
            wins = x > y
            self.winner[wins] = i
            xp.copyto(y, x, where=wins)

    def backward(self, i: int, xs: Arrays, y: Any, dy: Any, dx: Any) -> None:
        self.layer.xp.multiply(dy, self.winner == i, out=dx)


Eltwise.operations = EltwiseProduct, EltwiseSum, EltwiseMax

register("Eltwise", Eltwise)
