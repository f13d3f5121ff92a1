"""Eltwise sums by oneDNN's sum or binary addition, in the bottoms' layout, fused with a ReLU that follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.descriptors import NoFastForm
from scaffe.engines.onednn.elementwise import fusable_relu
from scaffe.engines.onednn.fusion import DeferredValues
from scaffe.engines.onednn.layer_primitives import LayerPrimitives, OnednnLayer
from scaffe.engines.onednn.operands import Operand, assign, layout_of
from scaffe.engines.onednn.pooled_memory import pooled
from scaffe.engines.onednn.primitives import Memory, Primitive
from scaffe.engines.onednn.sum import SumPrimitive, best_layout, can_rectify
from scaffe.layers.eltwise import Eltwise
from scaffe.layers.layer import Blobs, register


class EltwisePrimitives(LayerPrimitives):
    """Add the bottoms, each times its coefficient.

    A bottom whose coefficient is 1 holds the top's gradient itself, not a copy, unless that is in the plain layout.
    """

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        super().__init__(layer, bottom, top)
        param, engine, shape = layer.param.eltwise_param, self.engine, bottom[0].shape
        if param.operation != param.SUM:
            raise NoFastForm("products and largest values")
        self.coeffs = layer.coeffs or [1.0] * len(bottom)
        first = next((blob for blob in bottom if isinstance(blob.values.form, Memory)), bottom[0])
        self.desc = best_layout(engine, layout_of(engine, first.values, shape, self.kind), self.coeffs)
        relu = fusable_relu(layer) if can_rectify(self.coeffs) else None
        self.deferred = DeferredValues(None, self._write_sum) if relu else None
        self.sum = SumPrimitive(engine, self.desc, self.coeffs, relu.slope if relu else None)
        self.dy = Operand(engine, self.desc)
        self.scaled: dict[int, Primitive] = {}  # by bottom

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        y = self.sum.of([blob.values for blob in bottom])
        if self.deferred:
            top[0].values.take_form(self.deferred.with_result(y))
        else:
            assign(top[0].values, y)

    def _write_sum(self, array: Any) -> None:
        term = np.empty_like(array)
        array[...] = 0
        for operand in self.sum.operands:
            operand.memory.store(term)
            array += term

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        dy = self.dy.fetch(top[0].diff_values)
        for i, (blob, down) in enumerate(zip(bottom, propagate_down, strict=True)):
            if down and self.coeffs[i] == 1 and not dy.plain:
                blob.diff_values.take_form(dy, lent=True)
            elif down:
                run = self.scaled.get(i) or self._prepare_scaled(i)
                run.bind(lib.ARG_SRC, dy)
                run.memories[lib.ARG_DST].acquire()
                run.run()
                assign(blob.diff_values, run.memories[lib.ARG_DST])

    def _prepare_scaled(self, i: int) -> Primitive:
        engine, desc = self.engine, self.desc
        given = engine.handle, lib.FORWARD_INFERENCE, lib.ELTWISE_LINEAR, desc, desc, self.coeffs[i], 0.0
        described = engine.describe("eltwise_forward", *given, engine.attributes, shapes=desc.shape)
        self.scaled[i] = Primitive(engine, described, {lib.ARG_DST: pooled(engine, desc)})
        return self.scaled[i]


class OnednnEltwise(OnednnLayer, Eltwise):
    """Eltwise: sums; the reference form for products and maxima."""

    primitives_type = EltwisePrimitives


register("Eltwise", OnednnEltwise, engine="onednn")
