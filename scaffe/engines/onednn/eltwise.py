"""Eltwise sums by oneDNN, in the layout that the bottoms come in, in one with a ReLU behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.elementwise import rectifier_behind
from scaffe.engines.onednn.fusion import Ahead
from scaffe.engines.onednn.plan import Inlet, Plan, Planned, give, layout_of
from scaffe.engines.onednn.primitives import Memory, NoFastForm, Primitive, passing
from scaffe.engines.onednn.sum import Sum, best_layout, can_rectify
from scaffe.layers.eltwise import Eltwise
from scaffe.layers.layer import Blobs, register


class EltwisePlan(Plan):
    """A bottom whose coefficient is 1 gets the top's gradient itself, without a copy, unless that is plain."""

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        super().__init__(layer, bottom, top)
        param, engine, shape = layer.param.eltwise_param, self.engine, bottom[0].shape
        if param.operation != param.SUM:
            raise NoFastForm("products and largest values")
        self.coeffs = layer.coeffs or [1.0] * len(bottom)
        first = next((blob for blob in bottom if isinstance(blob.values.form, Memory)), bottom[0])
        self.desc = best_layout(engine, layout_of(engine, first.values, shape), self.coeffs)
        relu = rectifier_behind(layer) if can_rectify(self.coeffs) else None
        self.ahead = Ahead(None, self._show_sum) if relu else None
        self.sum = Sum(engine, self.desc, self.coeffs, relu.slope if relu else None)
        self.dy = Inlet(engine, self.desc)
        self.scaled: dict[int, Primitive] = {}  # by the bottom's index

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        y = self.sum.of([blob.values for blob in bottom])
        if self.ahead:
            top[0].values.take_form(self.ahead.holding(y))
        else:
            give(top[0].values, y)

    def _show_sum(self, array: Any) -> None:
        term = np.empty_like(array)
        array[...] = 0
        for inlet in self.sum.inlets:
            inlet.memory.store(term)
            array += term

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        dy = self.dy.fetch(top[0].diff_values)
        for i, (blob, down) in enumerate(zip(bottom, propagate_down, strict=True)):
            if down and self.coeffs[i] == 1 and not dy.plain:
                blob.diff_values.take_form(dy, lent=True)
            elif down:
                run = self.scaled.get(i) or self._prepare_scaled(i)
                run.bind(lib.ARG_SRC, dy)
                run.memories[lib.ARG_DST].taken()
                run.run()
                give(blob.diff_values, run.memories[lib.ARG_DST])

    def _prepare_scaled(self, i: int) -> Primitive:
        engine, desc = self.engine, self.desc
        given = engine.handle, lib.FORWARD_INFERENCE, lib.ELTWISE_LINEAR, desc, desc, self.coeffs[i], 0.0
        described = engine.describe("eltwise_forward", *given, engine.attributes, shapes=desc.shape)
        self.scaled[i] = Primitive(engine, described, {lib.ARG_DST: passing(engine, desc)})
        return self.scaled[i]


class OnednnEltwise(Planned, Eltwise):
    """Eltwise: sums; products and largest values in the reference form."""

    plan_type = EltwisePlan


register("Eltwise", OnednnEltwise, engine="onednn")
