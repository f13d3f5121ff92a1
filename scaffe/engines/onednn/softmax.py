"""Softmax by oneDNN's softmax."""

from __future__ import annotations

from contextlib import suppress

from scaffe.blob import Blob
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.descriptors import Desc, NoFastForm, PrimitiveDesc
from scaffe.engines.onednn.layer_primitives import OnednnLayer
from scaffe.engines.onednn.one_to_one import OneToOne
from scaffe.engines.onednn.operands import layout_of
from scaffe.layers.layer import register
from scaffe.layers.softmax import Softmax


class SoftmaxPrimitives(OneToOne):
    """Softmax over `axis`; a reorder puts the channels last where the bottom's own layout is not fast."""

    reads = (lib.ARG_DST,)

    def describe(self, bottom: Blob, top: Blob) -> tuple[PrimitiveDesc, PrimitiveDesc]:
        engine, shape = self.engine, bottom.shape
        descs = [layout_of(engine, bottom.values, shape)]
        if len(shape) > 2:
            descs.append(engine.channels_last(shape))
        for desc in descs[:-1]:
            with suppress(NoFastForm):
                return self._in(desc)
        return self._in(descs[-1])

    def _in(self, desc: Desc) -> tuple[PrimitiveDesc, PrimitiveDesc]:
        """Return both primitives for values in a layout. Raise NoFastForm where one is not fast."""
        engine, axis, accurate = self.engine, self.layer.axis, lib.SOFTMAX_ACCURATE
        what = f"axis {axis} of {desc.shape}"
        given = engine.handle, lib.FORWARD_TRAINING, accurate, desc, desc, axis, engine.attributes
        forward = engine.describe("softmax_forward", *given, shapes=what)
        back = engine.handle, accurate, desc, desc, desc, axis, forward, engine.attributes
        return forward, engine.describe("softmax_backward", *back, shapes=what)


class OnednnSoftmax(OnednnLayer, Softmax):
    """Softmax over an axis of classes."""

    primitives_type = SoftmaxPrimitives
    takes_bf16 = False


register("Softmax", OnednnSoftmax, engine="onednn")
