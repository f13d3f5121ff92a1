"""Split without copies; oneDNN's sum adds the gradients of its tops."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.blob import Blob
from scaffe.engines.onednn.descriptors import NoFastForm
from scaffe.engines.onednn.operands import assign, layout_of
from scaffe.engines.onednn.primitives import Memory, engine_of
from scaffe.engines.onednn.sum import SumPrimitive
from scaffe.layers.layer import Blobs, register
from scaffe.layers.split import Split


class OnednnSplit(Split):
    """Split: the tops share the `Values` object of the bottom, whatever its layout and data type."""

    takes_bf16 = True

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        super().reshape(bottom, top)
        for blob in top:
            blob.values = bottom[0].values
        self._sums: dict[int, SumPrimitive | None] = {}  # by number of gradients

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        """Do nothing: the tops share the bottom's values."""

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        self.context.engine.enter()
        parts = [blob for blob in top if not blob.diff_values.empty]  # no layer wrote the others
        if total := self._sum_of(parts, engine_of(self).kind_of(bottom[0])):
            assign(bottom[0].diff_values, total.of([blob.diff_values for blob in parts]))
        else:
            super().backward(top, propagate_down, bottom)

    def _sum_of(self, parts: Sequence[Blob], kind: int) -> SumPrimitive | None:
        """Return the primitive that adds these gradients in the first one's layout, None where all are plain."""
        if len(parts) not in self._sums:
            self._sums[len(parts)] = self._make_sum(parts, kind)
        return self._sums[len(parts)]

    def _make_sum(self, parts: Sequence[Blob], kind: int) -> SumPrimitive | None:
        engine = engine_of(self)
        first = next((blob for blob in parts if isinstance(blob.diff_values.form, Memory)), None)
        if first is None:
            return None
        try:
            desc = layout_of(engine, first.diff_values, first.shape, kind)
            return SumPrimitive(engine, desc, [1.0] * len(parts), gradient=True)
        except NoFastForm:
            return None


register("Split", OnednnSplit, engine="onednn")
