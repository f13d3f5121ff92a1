"""InnerProduct by cuBLAS, whose products add to the bias and to the gradient of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.blob import Blob
from scaffe.engines.cuda.engine import engine_of
from scaffe.engines.cuda.forms import data, diff, reading, writing
from scaffe.engines.cuda.layouts import add_row_sums, channels_first, channels_last
from scaffe.engines.cuda.typed_blobs import TypedLayer
from scaffe.layers.inner_product import InnerProduct
from scaffe.layers.layer import Blobs, register


class CudaInnerProduct(TypedLayer, InnerProduct):
    """InnerProduct: x (rows x inputs), y (rows x outputs).

    A bottom that lies channels last is small, since it was pooled: it is copied in C order, the order of the weights.
    """

    one_form = False

    def typed_blobs(self, bottom: Blobs, top: Blobs) -> list[Blob]:
        return [bottom[0]]

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        multiply = engine_of(self).multiply
        if data(bottom[0]).is_last:
            channels_first(engine_of(self), reading(data(bottom[0])), self._copy(bottom[0]))
        x, y = self._input(bottom[0]).reshape(self.rows, -1), top[0].array.reshape(self.rows, -1)
        if self.bias_term:
            y[...] = self.blobs[1].array
        multiply(x, self.weight(self.blobs[0].array).T, y, add=self.bias_term)

    def _copy(self, bottom: Blob) -> Any:
        return self.buffer("input", bottom.shape, np.float32)

    def _input(self, bottom: Blob) -> Any:
        """Return the bottom's values in C order; those of the forward pass where they are a copy."""
        return self._copy(bottom) if data(bottom).is_last else bottom.array

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        multiply, weights = engine_of(self).multiply, self.blobs[0]
        dy = top[0].diff_array.reshape(self.rows, -1)
        if self.param_propagate_down[0]:
            gradient, zeros = weights.diff_values.to_add(weights.shape, self.xp)
            x = self._input(bottom[0]).reshape(self.rows, -1)
            multiply(dy.T, x, self.weight(gradient), add=not zeros)
        self.add_bias_diff(dy)
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
        engine.multiply(dy, self.weight(self.blobs[0].array), dx.reshape(self.rows, -1))
        if part.is_last:
            channels_last(engine, dx, writing(part))


register("InnerProduct", CudaInnerProduct, engine="cuda")
