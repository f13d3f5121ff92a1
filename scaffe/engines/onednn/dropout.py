"""Dropout by oneDNN, in the layout that the bottom comes in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.blob import Values
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.plan import Inlet, Plan, Planned, give, layout_of
from scaffe.engines.onednn.primitives import Memory, NoFastForm, Primitive
from scaffe.layers.dropout import Dropout
from scaffe.layers.layer import Blobs, register


class DropoutPlan(Plan):
    """Values and gradients are multiplied by the same factors, 0 or 1 / (1 - dropout_ratio)."""

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        super().__init__(layer, bottom, top)
        engine, shape = self.engine, bottom[0].shape
        self.in_place = bottom[0] is top[0]
        if not layer.active and not self.in_place:
            raise NoFastForm("a copy")
        if layer.active:
            desc = layout_of(engine, bottom[0].values, shape)
            self.factors, self.ordered = Memory(engine, engine.plain(shape)), Inlet(engine, desc)
            self.data, self.diff = (_Product(self, desc) for _ in range(2))

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        layer = self.layer
        if layer.active:
            kept = layer.draw_uniform(bottom[0].shape) >= layer.ratio
            layer.xp.multiply(kept, layer.xp.float32(1 / (1 - layer.ratio)), out=self.factors.buffer)
            self.kept = self.ordered.fetch(Values(self.factors.buffer))
            give(top[0].values, self.data.of(bottom[0].values))

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0] and self.layer.active:
            give(bottom[0].diff_values, self.diff.of(top[0].diff_values))


class _Product:
    """Multiply values by the factors, where they lie if the layer works in place."""

    def __init__(self, plan: DropoutPlan, desc: Any):
        self.plan, engine = plan, plan.engine
        given = engine.handle, lib.BINARY_MUL, desc, desc, desc, engine.attributes
        self.run = Primitive(engine, engine.describe("binary", *given, shapes=desc.shape))
        self.inlet = Inlet(engine, desc)
        self.result: Memory | None = None

    def of(self, values: Values) -> Memory:
        x = self.inlet.fetch(values)
        if self.plan.in_place and not values.lent:
            result = x
        else:
            result = self.result = self.result or Memory(self.plan.engine, self.inlet.desc)
        for arg, memory in ((lib.ARG_SRC, x), (lib.ARG_SRC_1, self.plan.kept), (lib.ARG_DST, result)):
            self.run.bind(arg, memory)
        self.run.run()
        return result


class OnednnDropout(Planned, Dropout):
    """Dropout; in place in the TEST phase nothing at all."""

    plan_type = DropoutPlan


register("Dropout", OnednnDropout, engine="onednn")
