"""Concat by oneDNN, in the layout that the bottoms come in."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.plan import Inlet, Plan, Planned, give
from scaffe.engines.onednn.primitives import (
    Desc,
    Memory,
    NoFastForm,
    Primitive,
    PrimitiveDesc,
    handles,
    passing,
    reorder,
)
from scaffe.layers.concat import Concat
from scaffe.layers.layer import Blobs, register


class ConcatPlan(Plan):
    """The bottoms' gradients are copied out of parts of the top's."""

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        super().__init__(layer, bottom, top)
        engine, self.dst, self.axis = self.engine, top[0].shape, layer.axis
        forms = [blob.values.form for blob in bottom]
        if not all(isinstance(form, Memory) for form in forms):
            raise NoFastForm("a bottom that comes plain")
        descs = [form.desc for form in forms if isinstance(form, Memory)]
        described = self._describe(descs)
        self.inlets = [Inlet(engine, desc) for desc in descs]
        self.y = Memory(engine, described.desc(lib.QUERY_DST, self.dst))
        self.windows = [engine.part(self.y.desc, blob.shape, offset) for blob, offset in self._offsets(bottom)]
        self.run_forward = Primitive(engine, described, {lib.ARG_DST: self.y})
        self.dy: Inlet | None = None

    def _describe(self, descs: Sequence[Desc]) -> PrimitiveDesc:
        """Return the first fast way; left to itself the library guesses the top's layout from the first bottom's."""
        engine, shapes = self.engine, [desc.shape for desc in descs]
        for top in (engine.any(self.dst), *engine.blocked(self.dst)):
            given = engine.handle, top, len(descs), self.axis, handles(descs), engine.attributes
            with suppress(NoFastForm):
                return engine.describe("concat", *given, shapes=shapes)
        raise NoFastForm(f"no fast way to join {shapes} in the layouts that they come in")

    def _offsets(self, bottom: Blobs) -> list[tuple[Any, list[int]]]:
        """Return each bottom and where it begins in the top."""
        places, start = [], 0
        for blob in bottom:
            places.append((blob, [start if axis == self.axis else 0 for axis in range(len(self.dst))]))
            start += blob.shape[self.axis]
        return places

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        for k, (inlet, blob) in enumerate(zip(self.inlets, bottom, strict=True)):
            self.run_forward.bind(lib.ARG_MULTIPLE_SRC + k, inlet.fetch(blob.values))
        self.run_forward.run()
        give(top[0].values, self.y)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if self.dy is None:
            self._prepare_backward()
        assert self.dy is not None
        dy = self.dy.fetch(top[0].diff_values)
        for blob, down, window, run, dx in zip(bottom, propagate_down, self.parts, self.copies, self.dx, strict=True):
            if down:
                window.point(dy.buffer)
                dx.taken()
                run.run()
                give(blob.diff_values, dx)

    def _prepare_backward(self) -> None:
        self.dy = Inlet(self.engine, self.y.desc)
        self.parts = [Memory(self.engine, window, self.y.buffer) for window in self.windows]
        self.dx = [passing(self.engine, inlet.desc) for inlet in self.inlets]
        self.copies = [reorder(part, dx) for part, dx in zip(self.parts, self.dx, strict=True)]


class OnednnConcat(Planned, Concat):
    """Concat of bottoms that oneDNN's layers made; of others the reference form."""

    plan_type = ConcatPlan


register("Concat", OnednnConcat, engine="onednn")
