"""ReLU by oneDNN, in the layout in which its bottom comes."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.plan import Inlet, Plan, Planned, give, layout_of
from scaffe.engines.onednn.primitives import Memory, Primitive
from scaffe.layers.layer import Blobs, register
from scaffe.layers.relu import ReLU


class ReLUPlan(Plan):
    """In place, data and diffs are overwritten where they lie."""

    def __init__(self, layer: ReLU, bottom: Blobs, top: Blobs):
        super().__init__(layer, bottom, top)
        engine, slope = self.engine, layer.slope
        self.in_place = bottom[0] is top[0]
        self.desc = desc = layout_of(engine, bottom[0].values, bottom[0].shape)
        relu = lib.ELTWISE_RELU
        given = engine.handle, lib.FORWARD_TRAINING, relu, desc, desc, slope, 0.0, engine.attributes
        described = engine.describe("eltwise_forward", *given, shapes=bottom[0].shape)
        back = engine.handle, relu, desc, desc, desc, slope, 0.0, described, engine.attributes
        self.on_backward = engine.describe("eltwise_backward", *back, shapes=bottom[0].shape)
        self.x, self.dy = Inlet(engine, desc), Inlet(engine, desc)
        self.y = None if self.in_place else Memory(engine, desc)
        self.dx: Memory | None = None
        self.run_forward = Primitive(engine, described)
        self.run_backward: Primitive | None = None

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        x = self.x.fetch(bottom[0].values)
        y = self.y or x
        self.run_forward.bind(lib.ARG_SRC, x)
        self.run_forward.bind(lib.ARG_DST, y)
        self.run_forward.run()
        give(top[0].values, y)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        if self.run_backward is None:
            self.run_backward = Primitive(self.engine, self.on_backward)
            self.dx = None if self.in_place else Memory(self.engine, self.desc)
        dy = self.dy.fetch(top[0].diff_values)
        dx = self.dx or dy
        # In place, the bottom holds y: its sign is x's for any slope from 0 up.
        self.run_backward.bind(lib.ARG_SRC, self.x.recall(bottom[0].values))
        self.run_backward.bind(lib.ARG_DIFF_DST, dy)
        self.run_backward.bind(lib.ARG_DIFF_SRC, dx)
        self.run_backward.run()
        give(bottom[0].diff_values, dx)


class OnednnReLU(Planned, ReLU):
    """ReLU, leaky with negative_slope."""

    plan_type = ReLUPlan


register("ReLU", OnednnReLU, engine="onednn")
