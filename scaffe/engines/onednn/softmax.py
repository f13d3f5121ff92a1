"""Softmax by oneDNN."""

from __future__ import annotations

from contextlib import suppress

from scaffe.blob import Blob
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.one_to_one import OneToOne
from scaffe.engines.onednn.plan import Planned, layout_of
from scaffe.engines.onednn.primitives import Desc, NoFastForm, PrimitiveDesc
from scaffe.layers.layer import register
from scaffe.layers.softmax import Softmax


class SoftmaxPlan(OneToOne):
    """Classes that lie apart, as in plain maps, are brought together first."""

    reads = (lib.ARG_DST,)

    def describe(self, bottom: Blob, top: Blob) -> tuple[PrimitiveDesc, PrimitiveDesc]:
        engine, shape = self.engine, bottom.shape
        descs = [layout_of(engine, bottom.values, shape)]
        if len(shape) > 2:
            descs.append(engine.channels_last(shape))
        for desc in descs:
            with suppress(NoFastForm):
                return self._in(desc)
        raise NoFastForm(f"classes on axis {self.layer.axis} of shape {shape}")

    def _in(self, desc: Desc) -> tuple[PrimitiveDesc, PrimitiveDesc]:
        """Return the primitives for values in a layout. Raise NoFastForm where they are not fast."""
        engine, axis, accurate = self.engine, self.layer.axis, lib.SOFTMAX_ACCURATE
        given = engine.handle, lib.FORWARD_TRAINING, accurate, desc, desc, axis, engine.attributes
        forward = engine.describe("softmax_forward", *given, shapes=desc.shape)
        back = engine.handle, accurate, desc, desc, desc, axis, forward, engine.attributes
        return forward, engine.describe("softmax_backward", *back, shapes=desc.shape)


class OnednnSoftmax(Planned, Softmax):
    """Softmax."""

    plan_type = SoftmaxPlan


register("Softmax", OnednnSoftmax, engine="onednn")
