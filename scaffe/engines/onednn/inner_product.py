"""InnerProduct by oneDNN's sgemm in float32, by its inner product in bfloat16."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.blob import Values
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.descriptors import NoFastForm, PrimitiveDesc
from scaffe.engines.onednn.layer_primitives import LayerPrimitives, OnednnLayer
from scaffe.engines.onednn.operands import Gradient, Operand
from scaffe.engines.onednn.primitives import Memory, Onednn, Primitive, engine_of
from scaffe.engines.onednn.weights import WeightForm
from scaffe.layers.inner_product import InnerProduct
from scaffe.layers.layer import Blobs, register

SMALL = 32  # outputs; below this numpy's product is faster


class SgemmPrimitives(LayerPrimitives):
    """Products of float32 matrices in C order: reorders of large weights would cost more than they save.

    x (rows x inputs), y (rows x outputs). The product adds to the gradient of the weights, which saves a pass over it.
    """

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        super().__init__(layer, bottom, top)
        if layer.outputs < SMALL:
            raise NoFastForm  # without a reason: not a case to log

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        layer, weights = self.layer, self.layer.weight(self.layer.blobs[0].array)
        x, y = bottom[0].array.reshape(layer.rows, -1), top[0].array.reshape(layer.rows, -1)
        if layer.bias_term:
            y[...] = layer.blobs[1].array
        self.engine.gemm(x, weights.T, y, add=layer.bias_term)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        layer, (weights, *_) = self.layer, self.layer.blobs
        x, dy = bottom[0].array.reshape(layer.rows, -1), top[0].diff_array.reshape(layer.rows, -1)
        if layer.param_propagate_down[0]:
            diff, zeros = weights.diff_values.to_add(weights.shape, np)
            one, other = (x, dy) if layer.transpose else (dy, x)
            self.engine.gemm(one.T, other, diff, add=not zeros)
        layer.add_bias_diff(dy)
        if propagate_down[0]:
            self.engine.gemm(dy, layer.weight(weights.array), bottom[0].diff_array.reshape(layer.rows, -1))


class Bf16Primitives(LayerPrimitives):
    """Products of bfloat16 numbers, accumulated in float32; the weights are converted in each forward pass."""

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        super().__init__(layer, bottom, top)
        if layer.transpose:
            raise NoFastForm("transposed weights")
        engine, self.weights_shape = self.engine, layer.blobs[0].shape
        src, dst = (layer.rows, layer.inputs), (layer.rows, layer.outputs)
        forward, data, weights = self._describe(src, dst)
        self.x, self.dy = (Rows(engine, shape) for shape in (src, dst))
        self.y, self.dx = (Memory(engine, engine.plain(shape)) for shape in (dst, src))
        self.weights = WeightForm(layer, forward.desc(lib.QUERY_WEIGHTS, self.weights_shape))
        same = data.desc(lib.QUERY_WEIGHTS, self.weights_shape) == self.weights.desc
        desc = data.desc(lib.QUERY_WEIGHTS, self.weights_shape)
        self.back_weights = self.weights if same else WeightForm(layer, desc, brief=True)
        self.weight_diff = Gradient(engine, weights.desc(lib.QUERY_DIFF_WEIGHTS, self.weights_shape))
        self.run_forward = Primitive(engine, forward, {lib.ARG_DST: self.y})
        self.run_data = Primitive(engine, data, {lib.ARG_DIFF_SRC: self.dx})
        self.run_weights = Primitive(engine, weights, {lib.ARG_DIFF_WEIGHTS: self.weight_diff.memory})

    def _describe(self, src: Sequence[int], dst: Sequence[int]) -> list[PrimitiveDesc]:
        """Return the primitives of the three passes, forward, data, weights. Raise NoFastForm where one is not fast."""
        engine, low = self.engine, self.engine.kind
        x, dx, y, dy = engine.plain(src, low), engine.plain(src), engine.plain(dst), engine.plain(dst, low)
        w, dw = engine.any(self.weights_shape, low), engine.any(self.weights_shape)

        def describe(name: str, *arguments: Any) -> PrimitiveDesc:
            given = engine.handle, *arguments, engine.attributes
            return engine.describe(f"inner_product_{name}", *given, shapes=f"{src} by {self.weights_shape}")

        forward = describe("forward", lib.FORWARD_TRAINING, x, w, None, y)
        data = describe("backward_data", dx, w, dy, forward)
        return [forward, data, describe("backward_weights", x, dw, None, dy, forward)]

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        y = top[0].array
        self.y.point(y)
        self.run_forward.bind(lib.ARG_SRC, self.x.fetch(bottom[0].array))
        self.run_forward.bind(lib.ARG_WEIGHTS, self.weights.fetch(self.layer.blobs[0].values))
        self.run_forward.run()
        if self.layer.bias_term:
            y += self.layer.blobs[1].array

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        weights, dy = self.layer.blobs[0], self.dy.fetch(top[0].diff_array)
        if self.layer.param_propagate_down[0]:
            self.run_weights.bind(lib.ARG_SRC, self.x.fetch(bottom[0].array))
            self.run_weights.bind(lib.ARG_DIFF_DST, dy)
            self.weight_diff.memory.acquire()
            self.run_weights.run()
            self.weight_diff.add_to(weights)
        self.layer.add_bias_diff(top[0].diff_array)
        if propagate_down[0]:
            self.dx.point(bottom[0].diff_array)
            self.run_data.bind(lib.ARG_WEIGHTS, self._weights_for_data(weights.values))
            self.run_data.bind(lib.ARG_DIFF_DST, dy)
            self.run_data.run()
            self.back_weights.release()

    def _weights_for_data(self, values: Values) -> Memory:
        """Return the weights in the layout that the backward pass by data reads.

        Not recalled from an own operand: an update changes the weights without changing their version.
        """
        return self.weights.recall(values) if self.back_weights is self.weights else self.back_weights.fetch(values)


class Rows:
    """A blob's values as a matrix (rows x columns) of the engine's data type."""

    def __init__(self, engine: Onednn, shape: Sequence[int]):
        self.shape, self.values = shape, Values()
        self.operand = Operand(engine, engine.plain(shape, engine.kind))

    def fetch(self, array: np.ndarray) -> Memory:
        """Return the converted values of a blob's plain array."""
        self.values.take(array.reshape(self.shape))
        return self.operand.fetch(self.values)


class OnednnInnerProduct(OnednnLayer, InnerProduct):
    """InnerProduct in float32 or bfloat16."""

    @property
    def primitives_type(self) -> type[LayerPrimitives]:  # type: ignore[override]
        return SgemmPrimitives if engine_of(self).kind == lib.F32 else Bf16Primitives

    @property
    def rounded_blobs(self) -> Sequence[int]:  # type: ignore[override]
        return () if engine_of(self).kind == lib.F32 or self.transpose else (0,)


register("InnerProduct", OnednnInnerProduct, engine="onednn")
