"""Slice by reorders out of the bottom's memory, in the layout that it has."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.descriptors import Desc, NoFastForm, handles
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
        form, shape = bottom[0].values.form, bottom[0].shape
        if not isinstance(form, Memory):
            raise NoFastForm("a bottom in the plain layout")
        self.offsets = [[start if axis == layer.axis else 0 for axis in range(len(shape))] for start in layer.ends[:-1]]
        layouts = [self.engine.retyped(form.desc, self.kind)]
        if self.kind != lib.F32:  # blocks of channels can't be cut anywhere
            layouts.append(self.engine.plain(shape, self.kind))
        self._prepare(layouts, top)
        self.run_backward: Primitive | None = None

    def _prepare(self, layouts: Sequence[Desc], top: Blobs) -> None:
        """Make the memories and the primitives in the first layout that has the tops as parts. Raise NoFastForm."""
        for desc in layouts:
            with suppress(NoFastForm):
                places = zip(top, self.offsets, strict=True)
                windows = [self.engine.part(desc, blob.shape, offset) for blob, offset in places]
                tops = [self.engine.like(desc, blob.shape, self.kind) for blob in top]
                given = self.engine.handle, desc, len(tops), self.layer.axis, handles(tops), self.engine.attributes
                self.joined = self.engine.describe("concat", *given, shapes=[one.shape for one in tops])
                break
        else:
            raise NoFastForm(f"parts {[blob.shape for blob in top]} of a bottom in its layout")
        self.x = Operand(self.engine, desc)
        empty = np.empty(0, np.float32)
        self.parts = [Memory(self.engine, window, empty) for window in windows]
        self.y = [Memory(self.engine, one) for one in tops]
        self.copies = [reorder(part, y) for part, y in zip(self.parts, self.y, strict=True)]
        self.dy = [Operand(self.engine, one, brief=True) for one in tops]

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
