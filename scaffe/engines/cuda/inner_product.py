"""InnerProduct by cuBLAS, whose products add to the bias and to the gradient of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.blob import Blob
from scaffe.engines.cuda.engine import engine_of
from scaffe.engines.cuda.forms import data, diff, reading, writing
from scaffe.engines.cuda.layouts import BF16, add_row_sums, channels_first, channels_last
from scaffe.engines.cuda.typed_blobs import TypedLayer
from scaffe.layers.inner_product import InnerProduct
from scaffe.layers.layer import Blobs, register

LARGE = 1 << 22  # weights: to read them twice in half the bytes takes less time then than to round them first


class CudaInnerProduct(TypedLayer, InnerProduct):
    """InnerProduct: x (rows x inputs), y (rows x outputs).

    A bottom that lies channels last is small, since it was pooled: it is copied in C order, the order of the weights.
    In bfloat16 each factor of a large layer is rounded once: x and the weights forward, for the backward pass too, the
    gradient of y backward. A small layer leaves its factors to cuBLAS, which may keep more digits of them. Products are
    added up in float32, and written as that.
    """

    one_form = False

    def typed_blobs(self, bottom: Blobs, top: Blobs) -> list[Blob]:
        return [bottom[0]]

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        engine, part = engine_of(self), data(bottom[0])
        if part.is_last:
            x = self.buffer("input", bottom[0].shape, self._dtype)
            channels_first(engine, reading(part), x)
        else:
            x = self._factor("input", part.plain)
        self._weights = self._factor("weights", self.blobs[0].array)
        self._input = x.reshape(self.rows, -1)
        y = top[0].array.reshape(self.rows, -1)
        if self.bias_term:
            y[...] = self.blobs[1].array
        engine.multiply(self._input, self.weight(self._weights).T, y, add=self.bias_term)

    @property
    def _dtype(self) -> Any:
        """The type of the factors."""
        rounds = self.context.compute.numbers == "bf16" and self.blobs[0].count >= LARGE
        return BF16 if rounds else np.dtype(np.float32)

    def _factor(self, name: str, array: Any) -> Any:
        """Return a float32 array as products take it: itself, or rounded to bfloat16."""
        if self._dtype == array.dtype:
            return array
        rounded = self.buffer(name, array.shape, self._dtype)
        engine_of(self).over("rows", "to_bf16", array.size, array, rounded, each=8)
        return rounded

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        multiply, weights = engine_of(self).multiply, self.blobs[0]
        dy = top[0].diff_array.reshape(self.rows, -1)
        self.add_bias_diff(dy)
        dy = self._factor("gradient", dy)
        if self.param_propagate_down[0]:
            gradient, zeros = weights.diff_values.to_add(weights.shape, self.xp)
            multiply(dy.T, self._input, self.weight(gradient), add=not zeros)
        if propagate_down[0]:
            self._backward_data(dy, bottom[0])

    def add_bias_diff(self, dy: Any) -> None:
        if self.bias_term and self.param_propagate_down[1]:
            bias = self.blobs[1]
            total, zeros = bias.diff_values.to_add(bias.shape, self.xp)
            add_row_sums(engine_of(self), dy, total, add=not zeros)

    def _backward_data(self, dy: Any, bottom: Blob) -> None:
        part, engine = diff(bottom), engine_of(self)
        dx = self.scratch("input", bottom.shape, np.float32) if part.is_last else bottom.diff_array
        engine.multiply(dy, self.weight(self._weights), dx.reshape(self.rows, -1))
        if part.is_last:
            channels_last(engine, dx, writing(part))


register("InnerProduct", CudaInnerProduct, engine="cuda")
