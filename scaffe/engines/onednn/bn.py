"""BN, of SegNet's, ENet's and PSPNet's Caffe, by oneDNN's batch normalization with its scale and shift."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.blob import Blob
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.descriptors import NoFastForm, PrimitiveDesc
from scaffe.engines.onednn.layer_primitives import OnednnLayer
from scaffe.engines.onednn.one_to_one import OneToOne
from scaffe.engines.onednn.operands import Gradient, Operand, layout_of
from scaffe.engines.onednn.primitives import Memory, Primitive
from scaffe.layers.bn import BN
from scaffe.layers.layer import Blobs, register


class BNPrimitives(OneToOne):
    """A batch normalization of a bottom (N x C x H x W); of mean 0 and variance 1 where scale and shift are all."""

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        if len(bottom[0].shape) != 4:
            raise NoFastForm("a bottom without 4 axes")
        super().__init__(layer, bottom, top)
        engine, channels = self.engine, self.engine.plain(bottom[0].shape[1:2])
        self.mean, self.variance = Memory(engine, channels), Memory(engine, channels)
        self.variance.buffer[...] = 1
        self.operands = [Operand(engine, channels) for _ in range(2)]
        self.gradients = [Gradient(engine, channels) for _ in range(2)]

    @property
    def given(self) -> bool:
        """Whether mean and variance are not those of the batch."""
        return bool(self.layer.affine or self.layer.fixed)

    def describe(self, bottom: Blob, top: Blob) -> tuple[PrimitiveDesc, PrimitiveDesc]:
        engine, shape = self.engine, bottom.shape
        flags = lib.NORM_GLOBAL_STATISTICS * self.given | lib.NORM_SCALE | lib.NORM_SHIFT
        desc, eps = layout_of(engine, bottom.values, shape, self.kind), 0.0 if self.layer.affine else self.layer.eps
        given = engine.handle, lib.FORWARD_TRAINING, desc, desc, eps, flags, engine.attributes
        forward = engine.describe("batch_normalization_forward", *given, shapes=shape)
        back = engine.handle, lib.BACKWARD, desc, desc, desc, eps, flags, forward, engine.attributes
        return forward, engine.describe("batch_normalization_backward", *back, shapes=shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        if self.layer.fixed:
            for memory, blob in zip((self.mean, self.variance), self.layer.blobs[2:], strict=True):
                memory.buffer[...] = blob.array.reshape(-1)
        self._bind(self.run_forward, lib.ARG_SCALE, lib.ARG_SHIFT)
        super().forward(bottom, top)
        if not self.given:
            self.layer.remember(self.mean.buffer, self.variance.buffer)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """Compute all gradients at once, that of the bottom too."""
        self._bind(self.run_backward or self._prepare_backward(), lib.ARG_SCALE)
        super().backward(top, [True], bottom)
        for gradient, blob, learns in zip(self.gradients, self.layer.blobs, self.layer.learns, strict=False):
            if learns:
                gradient.add_to(blob)

    def _bind(self, run: Primitive, *arguments: int) -> None:
        run.bind(lib.ARG_MEAN, self.mean)
        run.bind(lib.ARG_VARIANCE, self.variance)
        for arg, operand, blob in zip(arguments, self.operands, self.layer.blobs, strict=False):
            run.bind(arg, operand.fetch(blob.values))

    def _prepare_backward(self) -> Primitive:
        run = super()._prepare_backward()
        for arg, gradient in zip((lib.ARG_DIFF_SCALE, lib.ARG_DIFF_SHIFT), self.gradients, strict=True):
            run.bind(arg, gradient.memory)
        return run


class OnednnBN(OnednnLayer, BN):
    """BN over the channels on axis 1."""

    primitives_type = BNPrimitives


register("BN", OnednnBN, engine="onednn")
