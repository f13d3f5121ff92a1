"""Split without copies, its tops' gradients added by oneDNN."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.blob import Blob
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.plan import Inlet, give, layout_of
from scaffe.engines.onednn.primitives import Engine, Memory, NoFastForm, Primitive, floats, handles
from scaffe.layers.layer import Blobs, register
from scaffe.layers.split import Split


class OnednnSplit(Split):
    """The tops have the bottom's values, in whatever form they are, since they are the same object."""

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        super().reshape(bottom, top)
        for blob in top:
            blob.values = bottom[0].values
        self._sums: dict[int, _Sum | None] = {}  # by the number of parts

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        """Do nothing: the tops have the values already."""

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        self.context.engine.enter()
        parts = [blob for blob in top if not blob.diff_values.empty]  # nobody gave the others a gradient
        if total := self._sum_of(parts):
            give(bottom[0].diff_values, total.of(parts))
        else:
            super().backward(top, propagate_down, bottom)

    def _sum_of(self, parts: Sequence[Blob]) -> _Sum | None:
        """Return what adds these gradients up, None where plain arrays serve best."""
        if len(parts) not in self._sums:
            try:
                self._sums[len(parts)] = _Sum(self.context.engine, parts)
            except NoFastForm:
                self._sums[len(parts)] = None
        return self._sums[len(parts)]


class _Sum:
    """The sum of several blobs' diffs, in the first one's layout."""

    def __init__(self, engine: Engine, parts: Sequence[Blob]):
        if not parts or all(blob.diff_values.form is None for blob in parts):
            raise NoFastForm("gradients that are all plain")
        count, first = len(parts), next(blob for blob in parts if blob.diff_values.form is not None)
        desc = layout_of(engine, first.diff_values, first.shape)
        given = engine.handle, desc, count, floats([1.0] * count), handles([desc] * count), engine.attributes
        described = engine.describe("sum", *given, shapes=desc.shape)
        self.inlets = [Inlet(engine, desc) for _ in parts]
        self.total = Memory(engine, desc)
        self.run = Primitive(engine, described, {lib.ARG_DST: self.total})

    def of(self, parts: Sequence[Blob]) -> Memory:
        """Return the sum, which the next call overwrites."""
        for k, (inlet, blob) in enumerate(zip(self.inlets, parts, strict=True)):
            self.run.bind(lib.ARG_MULTIPLE_SRC + k, inlet.fetch(blob.diff_values))
        self.run.run()
        return self.total


register("Split", OnednnSplit, engine="onednn")
