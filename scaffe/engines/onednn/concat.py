"""Concat by oneDNN's concat, in the layouts that the bottoms have."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.descriptors import Desc, NoFastForm, PrimitiveDesc, handles
from scaffe.engines.onednn.layer_primitives import LayerPrimitives, OnednnLayer
from scaffe.engines.onednn.operands import Operand, assign
from scaffe.engines.onednn.pooled_memory import pooled
from scaffe.engines.onednn.primitives import Memory, Primitive, reorder
from scaffe.layers.concat import Concat
from scaffe.layers.layer import Blobs, register


class ConcatPrimitives(LayerPrimitives):
    """Join the bottoms (N x C x H x W, equal but for `axis`); reorders copy their gradients out of the top's."""

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        super().__init__(layer, bottom, top)
        engine, self.dst, self.axis = self.engine, top[0].shape, layer.axis
        forms = [blob.values.form for blob in bottom]
        if not all(isinstance(form, Memory) for form in forms):
            raise NoFastForm("a bottom in the plain layout")
        descs = [engine.retyped(form.desc, self.kind) for form in forms if isinstance(form, Memory)]
        described = self._describe(descs)
        self.operands = [Operand(engine, desc) for desc in descs]
        self.y = Memory(engine, described.desc(lib.QUERY_DST, self.dst))
        self.windows = [engine.part(self.y.desc, blob.shape, offset) for blob, offset in self._offsets(bottom)]
        self.run_forward = Primitive(engine, described, {lib.ARG_DST: self.y})
        self.dy: Operand | None = None

    def _describe(self, descs: Sequence[Desc]) -> PrimitiveDesc:
        """Return the first fast description: in the library's own layout of the top, else in a blocked one.

        The library takes the first bottom's layout for the top's, which may not be fast. Raise NoFastForm.
        """
        engine, shapes = self.engine, [desc.shape for desc in descs]
        for top in (engine.any(self.dst, self.kind), *engine.blocked(self.dst, self.kind)):
            given = engine.handle, top, len(descs), self.axis, handles(descs), engine.attributes
            with suppress(NoFastForm):
                return engine.describe("concat", *given, shapes=shapes)
        raise NoFastForm(f"no fast concat of {shapes} in the layouts that these have")

    def _offsets(self, bottom: Blobs) -> list[tuple[Any, list[int]]]:
        """Return each bottom with its offsets in the top, elements of each axis."""
        found, start = [], 0
        for blob in bottom:
            found.append((blob, [start if axis == self.axis else 0 for axis in range(len(self.dst))]))
            start += blob.shape[self.axis]
        return found

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        for k, (operand, blob) in enumerate(zip(self.operands, bottom, strict=True)):
            self.run_forward.bind(lib.ARG_MULTIPLE_SRC + k, operand.fetch(blob.values))
        self.run_forward.run()
        assign(top[0].values, self.y)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if self.dy is None:
            self._prepare_backward()
        assert self.dy is not None
        dy = self.dy.fetch(top[0].diff_values)
        for blob, down, window, run, dx in zip(bottom, propagate_down, self.parts, self.copies, self.dx, strict=True):
            if down:
                window.point(dy.buffer)
                dx.acquire()
                run.run()
                assign(blob.diff_values, dx)

    def _prepare_backward(self) -> None:
        self.dy = Operand(self.engine, self.y.desc)
        self.parts = [Memory(self.engine, window, self.y.buffer) for window in self.windows]
        self.dx = [pooled(self.engine, operand.desc) for operand in self.operands]
        self.copies = [reorder(part, dx) for part, dx in zip(self.parts, self.dx, strict=True)]


class OnednnConcat(OnednnLayer, Concat):
    """Concat; the reference form where a bottom is in the plain layout."""

    primitives_type = ConcatPrimitives


register("Concat", OnednnConcat, engine="onednn")
