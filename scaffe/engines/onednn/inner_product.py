"""InnerProduct by oneDNN's matrix product, on plain arrays: reordering large weights would cost more than it gains."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.engines.onednn.primitives import Engine
from scaffe.layers.inner_product import InnerProduct
from scaffe.layers.layer import Blobs, register

SMALL = 32  # outputs from which on oneDNN's product is faster than numpy's


class OnednnInnerProduct(InnerProduct):
    """The gradient of the weights is added to the plain one by the product itself, which saves a pass over it."""

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        if not self._pays():
            return super().forward(bottom, top)
        x, y = bottom[0].array.reshape(self.rows, -1), top[0].array.reshape(self.rows, -1)
        if self.bias_term:
            y[...] = self.blobs[1].array
        self._engine().gemm(x, self._weight(self.blobs[0].array).T, y, add=self.bias_term)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not self._pays():
            return super().backward(top, propagate_down, bottom)
        x, dy = bottom[0].array.reshape(self.rows, -1), top[0].diff_array.reshape(self.rows, -1)
        if self.param_propagate_down[0]:
            diff, zeros = self.blobs[0].diff_values.to_add(self.blobs[0].shape, np)
            if self.transpose:
                self._engine().gemm(x.T, dy, diff, add=not zeros)
            else:
                self._engine().gemm(dy.T, x, diff, add=not zeros)
        if self.bias_term and self.param_propagate_down[1]:
            diff = self.blobs[1].diff_array
            diff += dy.sum(axis=0)
        if propagate_down[0]:
            self._engine().gemm(dy, self._weight(self.blobs[0].array), bottom[0].diff_array.reshape(self.rows, -1))

    def _pays(self) -> bool:
        return self.outputs >= SMALL

    def _engine(self) -> Engine:
        self.context.engine.enter()
        return self.context.engine


register("InnerProduct", OnednnInnerProduct, engine="onednn")
