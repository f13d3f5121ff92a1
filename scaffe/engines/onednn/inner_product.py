"""InnerProduct by oneDNN's sgemm in float32, by its inner product in bfloat16."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from scaffe.blob import Blob, Shape, Values
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.descriptors import Desc, NoFastForm, PrimitiveDesc
from scaffe.engines.onednn.layer_primitives import LayerPrimitives, OnednnLayer
from scaffe.engines.onednn.operands import Operand
from scaffe.engines.onednn.pooled_memory import pooled
from scaffe.engines.onednn.primitives import Memory, Onednn, Primitive, engine_of
from scaffe.engines.onednn.row_product import RowProduct
from scaffe.engines.onednn.sgemm import MadeFor, Sgemm
from scaffe.engines.onednn.weights import WeightForm
from scaffe.layers.inner_product import InnerProduct
from scaffe.layers.layer import Blobs, register

SMALL = 32  # outputs; below this numpy's product is faster
FEW_ROWS = 32  # up to this, float32's product gives the weights' gradient as fast as bfloat16's


class SgemmPrimitives(LayerPrimitives):
    """Products of float32 matrices in C order: reorders of large weights would cost more than they save.

    x (rows x inputs), y (rows x outputs). The product adds to the gradient of the weights, which saves a pass over it.
    """

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        super().__init__(layer, bottom, top)
        if layer.outputs < SMALL:
            raise NoFastForm  # without a reason: not a case to log
        self._forward, self._weights = MadeFor(self._by_rows), MadeFor(self._by_weights)
        self._data = MadeFor(self._by_data)

    def _by_rows(self, x: np.ndarray, weights: np.ndarray, y: np.ndarray) -> Sgemm:
        return Sgemm(self.engine, self._matrix(x), self.layer.weight(weights).T, self._matrix(y))

    def _by_weights(self, x: np.ndarray, dy: np.ndarray, diff: np.ndarray) -> Sgemm:
        one, other = (x, dy) if self.layer.transpose else (dy, x)
        return Sgemm(self.engine, self._matrix(one).T, self._matrix(other), diff)

    def _by_data(self, dy: np.ndarray, weights: np.ndarray, dx: np.ndarray) -> Sgemm:
        return Sgemm(self.engine, self._matrix(dy), self.layer.weight(weights), self._matrix(dx))

    def _matrix(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(self.layer.rows, -1)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        layer = self.layer
        product = self._forward(bottom[0].array, layer.blobs[0].array, top[0].array)
        if layer.bias_term:
            product.out[...] = layer.blobs[1].array
        product.run(add=layer.bias_term)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        layer, (weights, *_) = self.layer, self.layer.blobs
        dy = top[0].diff_array
        if layer.param_propagate_down[0]:
            diff, zeros = weights.diff_values.to_add(weights.shape, np)
            self._weights(bottom[0].array, dy, diff).run(add=not zeros)
        layer.add_bias_diff(dy)
        if propagate_down[0]:
            self._data(dy, weights.array, bottom[0].diff_array).run()


class Bf16Primitives(LayerPrimitives):
    """Products of bfloat16 numbers, accumulated in float32: x (rows x inputs), y (rows x outputs).

    The bias and the gradients of weights and bias are float32; y and the gradient of x have their blobs' types. With
    few rows the weights' gradient takes as long as its diff takes to be written: sgemm does that best.
    """

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        super().__init__(layer, bottom, top)
        if layer.transpose:
            raise NoFastForm("transposed weights")
        engine, self.weights_shape = self.engine, layer.blobs[0].shape
        src, dst = (layer.rows, layer.inputs), (layer.rows, layer.outputs)
        down = engine.kind_of(bottom[0])
        forward, data = self._describe(src, dst, down)
        self.x, self.dy = Rows(engine, bottom[0].shape, src), Rows(engine, top[0].shape, dst, brief=True)
        self.full_x, self.full_dy = (Operand(engine, engine.plain(b.shape), brief=True) for b in (bottom[0], top[0]))
        self.y = Product(engine, top[0].shape, dst, self.kind)
        self.dx = Product(engine, bottom[0].shape, src, down, pooled)
        self.bias = Operand(engine, engine.plain((layer.outputs,))) if layer.bias_term else None
        self.weights = WeightForm(layer, forward.desc(lib.QUERY_WEIGHTS, self.weights_shape))
        same = data.desc(lib.QUERY_WEIGHTS, self.weights_shape) == self.weights.desc
        desc = data.desc(lib.QUERY_WEIGHTS, self.weights_shape)
        self.back_weights = self.weights if same else WeightForm(layer, desc, brief=True)
        self.run_forward = Primitive(engine, forward, {lib.ARG_DST: self.y.matrix})
        self.run_data = Primitive(engine, data, {lib.ARG_DIFF_SRC: self.dx.matrix})
        self.product = RowProduct(engine, layer.rows, layer.inputs, layer.outputs) if layer.rows > FEW_ROWS else None

    def _describe(self, src: Shape, dst: Shape, down: int) -> list[PrimitiveDesc]:
        """Return the primitives forward and backward by data. Raise NoFastForm where one is not fast."""
        engine, low = self.engine, self.engine.kind
        x, dx, w = engine.plain(src, low), engine.plain(src, down), engine.any(self.weights_shape, low)
        y, dy = engine.plain(dst, self.kind), engine.plain(dst, low)
        b = engine.plain(dst[1:]) if self.layer.bias_term else None

        def describe(name: str, *arguments: Any) -> PrimitiveDesc:
            given = engine.handle, *arguments, engine.attributes
            return engine.describe(f"inner_product_{name}", *given, shapes=f"{src} by {self.weights_shape}")

        forward = describe("forward", lib.FORWARD_TRAINING, x, w, b, y)
        return [forward, describe("backward_data", dx, w, dy, forward)]

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        run, blobs = self.run_forward, self.layer.blobs
        self.y.acquire(top[0], "array")
        run.bind(lib.ARG_SRC, self.x.fetch(bottom[0].values))
        run.bind(lib.ARG_WEIGHTS, self.weights.fetch(blobs[0].values))
        if self.bias:
            run.bind(lib.ARG_BIAS, self.bias.fetch(blobs[1].values))
        run.run()
        self.y.assign(top[0].values)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        dy = self.dy.fetch(top[0].diff_values)
        self._add_gradients(bottom[0], top[0])
        if propagate_down[0]:
            self._backward_data(dy, bottom[0])
        self.dy.release()

    def _add_gradients(self, bottom: Blob, top: Blob) -> None:
        """Add the gradients of weights and bias to their diffs."""
        layer, (weights, *_) = self.layer, self.layer.blobs
        dy = self.full_dy.fetch(top.diff_values).buffer.reshape(layer.rows, -1)
        layer.add_bias_diff(dy)
        if layer.param_propagate_down[0] and self.product:
            self.product.add(self.x.recall(bottom.values), self.dy.recall(top.diff_values), weights)
        elif layer.param_propagate_down[0]:
            x = self.full_x.fetch(bottom.values).buffer.reshape(layer.rows, -1)
            diff, zeros = weights.diff_values.to_add(weights.shape, np)
            self.engine.gemm(dy.T, x, diff, add=not zeros)
            self.full_x.release()
        self.full_dy.release()

    def _backward_data(self, dy: Memory, bottom: Blob) -> None:
        """Compute the gradient of the bottom."""
        run, values = self.run_data, self.layer.blobs[0].values
        self.dx.acquire(bottom, "diff_array")
        run.bind(lib.ARG_WEIGHTS, self._weights_for_data(values))
        run.bind(lib.ARG_DIFF_DST, dy)
        run.run()
        self.dx.assign(bottom.diff_values)
        self.back_weights.release()

    def _weights_for_data(self, values: Values) -> Memory:
        """Return the weights in the layout that the backward pass by data reads.

        Not recalled from an own operand: an update changes the weights without changing their version.
        """
        return self.weights.recall(values) if self.back_weights is self.weights else self.back_weights.fetch(values)


class Rows:
    """A blob's values as a matrix (rows x columns) of bfloat16 numbers in C order."""

    def __init__(self, engine: Onednn, shape: Shape, matrix: Shape, brief: bool = False):
        self.operand = Operand(engine, engine.plain(shape, engine.kind), brief=brief)
        self.matrix = Memory(engine, engine.plain(matrix, engine.kind), np.empty(0, np.float32))

    def fetch(self, values: Values) -> Memory:
        """Return the values as a matrix, which is valid until they change."""
        self.matrix.point(self.operand.fetch(values).buffer)
        return self.matrix

    def recall(self, values: Values) -> Memory:
        """Return the matrix of the last fetch; fetch again only where the values may have changed since."""
        self.matrix.point(self.operand.recall(values).buffer)
        return self.matrix

    def release(self) -> None:
        """Return the buffer of a brief copy to the pool."""
        self.operand.release()


class Product:
    """A product, written into `matrix`, which a blob holds in its own shape: as its plain array, or in bfloat16."""

    def __init__(
        self, engine: Onednn, shape: Shape, matrix: Shape, kind: int, make: Callable[[Onednn, Desc], Memory] = Memory
    ):
        self.matrix = Memory(engine, engine.plain(matrix, kind), np.empty(0, np.float32))
        self.form = None if kind == lib.F32 else make(engine, engine.plain(shape, kind))

    def acquire(self, blob: Blob, part: str) -> None:
        """Point the matrix at the memory for the blob's `part`, "array" or "diff_array"."""
        self.matrix.point(self.form.acquire().buffer if self.form else getattr(blob, part))

    def assign(self, values: Values) -> None:
        """Assign the written product to the blob's values, unless they are in the plain array already."""
        if self.form:
            values.take_form(self.form)


class OnednnInnerProduct(OnednnLayer, InnerProduct):
    """InnerProduct in float32 or bfloat16."""

    @property
    def primitives_type(self) -> type[LayerPrimitives]:  # type: ignore[override]
        return SgemmPrimitives if engine_of(self).kind == lib.F32 else Bf16Primitives

    @property
    def rounded_blobs(self) -> Sequence[int]:  # type: ignore[override]
        return () if engine_of(self).kind == lib.F32 or self.transpose else (0,)


register("InnerProduct", OnednnInnerProduct, engine="onednn")
