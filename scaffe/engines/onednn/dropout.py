"""Dropout by oneDNN's binary multiplication, in the layout of the bottom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.blob import Values
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.descriptors import NoFastForm
from scaffe.engines.onednn.layer_primitives import LayerPrimitives, OnednnLayer
from scaffe.engines.onednn.operands import Operand, assign, layout_of
from scaffe.engines.onednn.primitives import Memory, Primitive
from scaffe.layers.dropout import Dropout
from scaffe.layers.layer import Blobs, register

BF16_ONE = np.uint16(0x3F80)  # the bits of 1


class DropoutPrimitives(LayerPrimitives):
    """Multiply values and gradients by the same factors, 0 or 1 / (1 - dropout_ratio), one per element.

    In bfloat16 the factors are 0 or 1, and the primitive multiplies by 1 / (1 - dropout_ratio), which would be rounded.
    """

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        super().__init__(layer, bottom, top)
        engine, shape = self.engine, bottom[0].shape
        self.in_place = bottom[0] is top[0]
        if not layer.active and not self.in_place:
            raise NoFastForm("a copy of the bottom")
        if layer.active:
            desc = layout_of(engine, bottom[0].values, shape, self.kind)
            self.factors, self.ordered = Memory(engine, engine.plain(shape, self.kind)), Operand(engine, desc)
            self.drawn = Values()
            assign(self.drawn, self.factors)
            self.scale = Memory(engine, engine.plain((1,)))
            self.scale.buffer[...] = 1 / (1 - layer.ratio)
            self.data, self.diff = (_Product(self, desc) for _ in range(2))

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        layer = self.layer
        if layer.active:
            self._write(layer.draw_uniform(bottom[0].shape) >= layer.ratio)
            self.kept = self.ordered.fetch(self.drawn)
            assign(top[0].values, self.data.of(bottom[0].values))

    def _write(self, kept: np.ndarray) -> None:
        """Write the factors of elements that are kept, or not."""
        if self.kind == lib.F32:
            np.multiply(kept, self.scale.buffer, out=self.factors.buffer)
        else:
            np.multiply(kept.reshape(-1), BF16_ONE, out=self.factors.buffer.view(np.uint16)[: kept.size])

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0] and self.layer.active:
            assign(bottom[0].diff_values, self.diff.of(top[0].diff_values))


class _Product:
    """Multiply values by the factors: in place, unless another blob holds the values too."""

    def __init__(self, owner: DropoutPrimitives, desc: Any):
        self.owner, engine = owner, owner.engine
        low = owner.kind != lib.F32
        given = (
            engine.handle,
            lib.BINARY_MUL,
            desc,
            desc,
            desc,
            engine.factored(lib.ARG_SRC_1) if low else engine.attributes,
        )
        scale = {lib.ARG_SCALES | lib.ARG_SRC_1: owner.scale} if low else {}
        self.run = Primitive(engine, engine.describe("binary", *given, shapes=desc.shape), scale)
        self.operand = Operand(engine, desc)
        self.result: Memory | None = None

    def of(self, values: Values) -> Memory:
        """Return the product; the next call overwrites it."""
        x = self.operand.fetch(values)
        if self.owner.in_place and not values.lent:
            result = x
        else:
            result = self.result = self.result or Memory(self.owner.engine, self.operand.desc)
        for arg, memory in ((lib.ARG_SRC, x), (lib.ARG_SRC_1, self.owner.kept), (lib.ARG_DST, result)):
            self.run.bind(arg, memory)
        self.run.run()
        return result


class OnednnDropout(OnednnLayer, Dropout):
    """Dropout; in place in the TEST phase it computes nothing."""

    primitives_type = DropoutPrimitives


register("Dropout", OnednnDropout, engine="onednn")
