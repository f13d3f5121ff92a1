"""Slice by reorders out of the bottom's memory, in the layout that it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.descriptors import NoFastForm, handles
from scaffe.engines.onednn.layer_primitives import LayerPrimitives, OnednnLayer
from scaffe.engines.onednn.operands import Operand, assign
from scaffe.engines.onednn.pooled_memory import pooled
from scaffe.engines.onednn.primitives import Memory, Primitive, reorder
from scaffe.layers.layer import Blobs, register
from scaffe.layers.slice import Slice


class SlicePrimitives(LayerPrimitives):
    """Copy each top out of the bottom (N x C x H x W); oneDNN's concat joins the tops' gradients."""

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        super().__init__(layer, bottom, top)
        engine, form, shape = self.engine, bottom[0].values.form, bottom[0].shape
        if not isinstance(form, Memory):
            raise NoFastForm("a bottom in the plain layout")
        self.x = Operand(engine, engine.retyped(form.desc, self.kind))
        tops = [engine.like(self.x.desc, blob.shape, self.kind) for blob in top]
        offsets = [[start if axis == layer.axis else 0 for axis in range(len(shape))] for start in layer.ends[:-1]]
        self.parts = [
            Memory(engine, engine.part(self.x.desc, blob.shape, offset), form.buffer)
            for blob, offset in zip(top, offsets, strict=True)
        ]
        self.y = [Memory(engine, desc) for desc in tops]
        self.copies = [reorder(part, y) for part, y in zip(self.parts, self.y, strict=True)]
        given = engine.handle, self.x.desc, len(tops), layer.axis, handles(tops), engine.attributes
        self.joined = engine.describe("concat", *given, shapes=[desc.shape for desc in tops])
        self.dy = [Operand(engine, desc, brief=True) for desc in tops]
        self.run_backward: Primitive | None = None

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        x = self.x.fetch(bottom[0].values)
        for blob, part, run, y in zip(top, self.parts, self.copies, self.y, strict=True):
            part.point(x.buffer)
            run.run()
            assign(blob.values, y)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        if self.run_backward is None:
            dx = pooled(self.engine, self.x.desc)
            self.run_backward = Primitive(self.engine, self.joined, {lib.ARG_DST: dx})
        for k, (operand, blob) in enumerate(zip(self.dy, top, strict=True)):
            self.run_backward.bind(lib.ARG_MULTIPLE_SRC + k, operand.fetch(blob.diff_values))
        dx = self.run_backward.memories[lib.ARG_DST].acquire()
        self.run_backward.run()
        assign(bottom[0].diff_values, dx)
        for operand in self.dy:
            operand.release()


class OnednnSlice(OnednnLayer, Slice):
    """Slice; the reference form where the bottom is in the plain layout."""

    primitives_type = SlicePrimitives


register("Slice", OnednnSlice, engine="onednn")
