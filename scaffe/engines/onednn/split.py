"""Split without copies, its tops' gradients added by oneDNN."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.plan import Inlet, give, layout_of
from scaffe.engines.onednn.primitives import Desc, Engine, Memory, Primitive, floats, handles
from scaffe.layers.layer import Blobs, register
from scaffe.layers.split import Split


class OnednnSplit(Split):
    """The tops have the bottom's values, in whatever form they are, since they are the same object."""

    _sum: _Sum | None = None

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        super().reshape(bottom, top)
        for blob in top:
            blob.values = bottom[0].values
        self._sum = None

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        """Do nothing: the tops have the values already."""

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        engine: Engine = self.context.engine
        engine.enter()
        parts = [blob for blob in top if not blob.diff_values.empty]  # nobody gave the others a gradient
        if len(parts) < 2 or any(blob.diff_values.form is None for blob in parts):
            return super().backward(top, propagate_down, bottom)
        if self._sum is None or len(parts) != len(self._sum.inlets):
            self._sum = _Sum(engine, layout_of(engine, parts[0].diff_values, parts[0].shape), len(parts))
        give(bottom[0].diff_values, self._sum.of(parts))


class _Sum:
    """The sum of the diffs of `count` blobs in one layout."""

    def __init__(self, engine: Engine, desc: Desc, count: int):
        self.inlets = [Inlet(engine, desc) for _ in range(count)]
        self.total = Memory(engine, desc)
        given = engine.handle, desc, count, floats([1.0] * count), handles([desc] * count), engine.attributes
        self.run = Primitive(engine, engine.describe("sum", *given, shapes=desc.shape), {lib.ARG_DST: self.total})

    def of(self, parts: Blobs) -> Memory:
        for k, (inlet, blob) in enumerate(zip(self.inlets, parts, strict=True)):
            self.run.bind(lib.ARG_MULTIPLE_SRC + k, inlet.fetch(blob.diff_values))
        self.run.run()
        return self.total


register("Split", OnednnSplit, engine="onednn")
