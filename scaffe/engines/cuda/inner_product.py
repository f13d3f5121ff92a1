"""InnerProduct by cuBLAS, whose products add to the bias and to the gradient of the weights."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.engines.cuda.engine import engine_of
from scaffe.layers.inner_product import InnerProduct
from scaffe.layers.layer import Blobs, register


class CudaInnerProduct(InnerProduct):
    """InnerProduct: x (rows x inputs), y (rows x outputs)."""

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        multiply = engine_of(self).multiply
        x, y = bottom[0].array.reshape(self.rows, -1), top[0].array.reshape(self.rows, -1)
        if self.bias_term:
            y[...] = self.blobs[1].array
        multiply(x, self.weight(self.blobs[0].array).T, y, add=self.bias_term)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        multiply, weights = engine_of(self).multiply, self.blobs[0]
        x, dy = bottom[0].array.reshape(self.rows, -1), top[0].diff_array.reshape(self.rows, -1)
        if self.param_propagate_down[0]:
            diff, zeros = weights.diff_values.to_add(weights.shape, self.xp)
            multiply(dy.T, x, self.weight(diff), add=not zeros)
        self.add_bias_diff(dy)
        if propagate_down[0]:
            multiply(dy, self.weight(weights.array), bottom[0].diff_array.reshape(self.rows, -1))


register("InnerProduct", CudaInnerProduct, engine="cuda")
