"""Scale by oneDNN's batch normalization: as part of the BatchNorm before it, or in bfloat16 by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.blob import Blob, Shape
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.descriptors import NoFastForm, PrimitiveDesc
from scaffe.engines.onednn.fusion import FusableLayer
from scaffe.engines.onednn.layer_primitives import OnednnLayer
from scaffe.engines.onednn.one_to_one import OneToOne
from scaffe.engines.onednn.operands import Gradient, Operand, layout_of
from scaffe.engines.onednn.primitives import Memory, Primitive, engine_of
from scaffe.layers.layer import Blobs, register
from scaffe.layers.scale import Scale


class ScalePrimitives(OneToOne):
    """A batch normalization with mean 0 and variance 1, of which the factors and the bias are left."""

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        if engine_of(layer).kind_of(top[0]) == lib.F32 or not layer.by_channel(bottom[0].shape):
            raise NoFastForm  # without a reason: not a case to log
        super().__init__(layer, bottom, top)
        engine, channels = self.engine, self.engine.plain(bottom[0].shape[1:2])
        mean, variance = Memory(engine, channels), Memory(engine, channels)
        variance.buffer[...] = 1
        self.statistics = {lib.ARG_MEAN: mean, lib.ARG_VARIANCE: variance}
        self.operands = [Operand(engine, channels) for _ in layer.blobs]
        self.gradients = [Gradient(engine, channels) for _ in layer.blobs]

    def describe(self, bottom: Blob, top: Blob) -> tuple[PrimitiveDesc, PrimitiveDesc]:
        engine, shape = self.engine, bottom.shape
        flags = lib.NORM_GLOBAL_STATISTICS | lib.NORM_SCALE | lib.NORM_SHIFT * (len(self.layer.blobs) == 2)
        desc = layout_of(engine, bottom.values, shape, self.kind)
        given = engine.handle, lib.FORWARD_TRAINING, desc, desc, 0.0, flags, engine.attributes
        forward = engine.describe("batch_normalization_forward", *given, shapes=shape)
        back = engine.handle, lib.BACKWARD, desc, desc, desc, 0.0, flags, forward, engine.attributes
        return forward, engine.describe("batch_normalization_backward", *back, shapes=shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        self._bind(self.run_forward, lib.ARG_SCALE, lib.ARG_SHIFT)
        super().forward(bottom, top)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """Compute all gradients at once, that of the bottom too."""
        self._bind(self.run_backward or self._prepare_backward(), lib.ARG_SCALE)
        super().backward(top, [True], bottom)
        learns = self.layer.param_propagate_down
        for gradient, blob, learned in zip(self.gradients, self.layer.blobs, learns, strict=True):
            if learned:
                gradient.add_to(blob)

    def _bind(self, run: Primitive, *arguments: int) -> None:
        for arg, memory in self.statistics.items():
            run.bind(arg, memory)
        for arg, operand, blob in zip(arguments, self.operands, self.layer.blobs, strict=False):
            run.bind(arg, operand.fetch(blob.values))

    def _prepare_backward(self) -> Primitive:
        run = super()._prepare_backward()
        for arg, gradient in zip((lib.ARG_DIFF_SCALE, lib.ARG_DIFF_SHIFT), self.gradients, strict=False):
            run.bind(arg, gradient.memory)
        return run


class OnednnScale(FusableLayer, OnednnLayer, Scale):
    """Scale; a BatchNorm that only this layer follows computes it where there is one factor per channel."""

    primitives_type = ScalePrimitives

    def by_channel(self, shape: Shape) -> bool:
        """Return whether a bottom of this shape (N x C x ...) is scaled by one learned factor per channel."""
        axis = self.param.scale_param.axis
        return bool(self.blobs) and axis in (1, 1 - len(shape)) and self.blobs[0].shape == shape[1:2]


register("Scale", OnednnScale, engine="onednn")
