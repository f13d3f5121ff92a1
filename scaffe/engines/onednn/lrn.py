"""LRN across channels by oneDNN's lrn."""

from __future__ import annotations

from contextlib import suppress

from scaffe.blob import Blob
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.descriptors import Desc, NoFastForm, PrimitiveDesc
from scaffe.engines.onednn.layer_primitives import OnednnLayer
from scaffe.engines.onednn.one_to_one import OneToOne
from scaffe.engines.onednn.operands import layout_of
from scaffe.layers.layer import register
from scaffe.layers.lrn import LRN


class LRNPrimitives(OneToOne):
    """LRN of a bottom (N x C x H x W); the workspace holds the scales for the backward pass."""

    def describe(self, bottom: Blob, top: Blob) -> tuple[PrimitiveDesc, PrimitiveDesc]:
        param, shape = self.layer.param.lrn_param, bottom.shape
        if param.norm_region == param.WITHIN_CHANNEL:
            raise NoFastForm("norm_region WITHIN_CHANNEL")
        for desc in self._layouts(bottom):
            with suppress(NoFastForm):
                return self._in(desc)
        raise NoFastForm(f"LRN of {shape} in the layout of its bottom")

    def _layouts(self, bottom: Blob) -> list[Desc]:
        """Return the layouts to try: the bottom's own, and in bfloat16, which has no plain one, the usual ones.

        With channels last oneDNN 3.2 crashes in creating the backward primitive of windows below 3 channels. Of more
        than 16 channels in bfloat16 its gradients are wrong for windows above 5, and for channels that fill no blocks.
        """
        engine, shape = self.engine, bottom.shape
        desc, blocked = layout_of(engine, bottom.values, shape, self.kind), engine.blocked(shape, self.kind)
        last, size = engine.channels_last(shape, self.kind), self.layer.param.lrn_param.local_size
        if self.kind == lib.F32:
            return blocked[:1] if desc == last else [desc]
        right = size > 2 and (shape[1] <= 16 or (shape[1] % 16 == 0 and size <= 5))
        return [*([last] if right else []), *([] if desc == last else [desc]), *blocked]

    def _in(self, desc: Desc) -> tuple[PrimitiveDesc, PrimitiveDesc]:
        """Return both primitives for values in a layout. Raise NoFastForm where one is not fast."""
        param, engine, shape = self.layer.param.lrn_param, self.engine, desc.shape
        numbers = param.local_size, param.alpha, param.beta, param.k
        across = lib.LRN_ACROSS_CHANNELS
        given = engine.handle, lib.FORWARD_TRAINING, across, desc, desc, *numbers, engine.attributes
        forward = engine.describe("lrn_forward", *given, shapes=shape)
        back = engine.handle, across, desc, desc, desc, *numbers, forward, engine.attributes
        return forward, engine.describe("lrn_backward", *back, shapes=shape)


class OnednnLRN(OnednnLayer, LRN):
    """LRN ACROSS_CHANNELS; the reference form for WITHIN_CHANNEL."""

    primitives_type = LRNPrimitives


register("LRN", OnednnLRN, engine="onednn")
