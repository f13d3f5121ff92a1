"""LRN across channels by oneDNN."""

from __future__ import annotations

from scaffe.blob import Blob
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.one_to_one import OneToOne
from scaffe.engines.onednn.plan import Planned, layout_of
from scaffe.engines.onednn.primitives import NoFastForm, PrimitiveDesc
from scaffe.layers.layer import register
from scaffe.layers.lrn import LRN


class LRNPlan(OneToOne):
    """Scales go from the forward to the backward pass in oneDNN's workspace."""

    def describe(self, bottom: Blob, top: Blob) -> tuple[PrimitiveDesc, PrimitiveDesc]:
        param, engine, shape = self.layer.param.lrn_param, self.engine, bottom.shape
        if param.norm_region == param.WITHIN_CHANNEL:
            raise NoFastForm("norm_region WITHIN_CHANNEL")
        desc = layout_of(engine, bottom.values, shape)
        if desc == engine.channels_last(shape):  # oneDNN 3.2 crashes making the backward primitive for some
            desc = engine.blocked(shape)[0]
        numbers = param.local_size, param.alpha, param.beta, param.k
        across = lib.LRN_ACROSS_CHANNELS
        given = engine.handle, lib.FORWARD_TRAINING, across, desc, desc, *numbers, engine.attributes
        forward = engine.describe("lrn_forward", *given, shapes=shape)
        back = engine.handle, across, desc, desc, desc, *numbers, forward, engine.attributes
        return forward, engine.describe("lrn_backward", *back, shapes=shape)


class OnednnLRN(Planned, LRN):
    """LRN across channels; within each channel the reference form."""

    plan_type = LRNPlan


register("LRN", OnednnLRN, engine="onednn")
