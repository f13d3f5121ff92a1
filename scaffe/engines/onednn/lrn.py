"""LRN across channels by oneDNN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.plan import Inlet, Plan, Planned, give, layout_of
from scaffe.engines.onednn.primitives import Memory, NoFastForm, Primitive
from scaffe.layers.layer import Blobs, register
from scaffe.layers.lrn import LRN


class LRNPlan(Plan):
    """Scales go from the forward to the backward pass in oneDNN's workspace."""

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        super().__init__(layer, bottom, top)
        param, engine, shape = layer.param.lrn_param, self.engine, bottom[0].shape
        if param.norm_region == param.WITHIN_CHANNEL:
            raise NoFastForm("norm_region WITHIN_CHANNEL")
        desc = layout_of(engine, bottom[0].values, shape)
        if desc == engine.channels_last(shape):  # oneDNN 3.2 crashes making the backward primitive for some
            desc = engine.blocked(shape)[0]
        self.desc = desc
        numbers = param.local_size, param.alpha, param.beta, param.k
        across = lib.LRN_ACROSS_CHANNELS
        given = engine.handle, lib.FORWARD_TRAINING, across, desc, desc, *numbers, engine.attributes
        on_forward = engine.describe("lrn_forward", *given, shapes=shape)
        back = engine.handle, across, desc, desc, desc, *numbers, on_forward, engine.attributes
        self.on_backward = engine.describe("lrn_backward", *back, shapes=shape)
        self.x, self.y = Inlet(engine, desc), Memory(engine, desc)
        self.kept: dict[int, Memory] = {}
        workspace = on_forward.desc(lib.QUERY_WORKSPACE)
        if workspace.nbytes:
            self.kept[lib.ARG_WORKSPACE] = Memory(engine, workspace)
        self.run_forward = Primitive(engine, on_forward, {lib.ARG_DST: self.y, **self.kept})
        self.run_backward: Primitive | None = None

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        self.run_forward.bind(lib.ARG_SRC, self.x.fetch(bottom[0].values))
        self.run_forward.run()
        give(top[0].values, self.y)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        if self.run_backward is None:
            self.dy, self.dx = Inlet(self.engine, self.desc), Memory(self.engine, self.desc)
            self.run_backward = Primitive(self.engine, self.on_backward, {lib.ARG_DIFF_SRC: self.dx, **self.kept})
        self.run_backward.bind(lib.ARG_SRC, self.x.recall(bottom[0].values))
        self.run_backward.bind(lib.ARG_DIFF_DST, self.dy.fetch(top[0].diff_values))
        self.run_backward.run()
        give(bottom[0].diff_values, self.dx)


class OnednnLRN(Planned, LRN):
    """LRN across channels; within each channel the reference form."""

    plan_type = LRNPlan


register("LRN", OnednnLRN, engine="onednn")
