"""Split without copies, its tops' gradients added by oneDNN."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.blob import Blob
from scaffe.engines.onednn.plan import give, layout_of
from scaffe.engines.onednn.primitives import Memory, NoFastForm, engine_of
from scaffe.engines.onednn.sum import Sum
from scaffe.layers.layer import Blobs, register
from scaffe.layers.split import Split


class OnednnSplit(Split):
    """The tops have the bottom's values, in whatever form they are, since they are the same object."""

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        super().reshape(bottom, top)
        for blob in top:
            blob.values = bottom[0].values
        self._sums: dict[int, Sum | None] = {}  # by the number of parts

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        """Do nothing: the tops have the values already."""

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        self.context.engine.enter()
        parts = [blob for blob in top if not blob.diff_values.empty]  # nobody gave the others a gradient
        if total := self._sum_of(parts):
            give(bottom[0].diff_values, total.of([blob.diff_values for blob in parts]))
        else:
            super().backward(top, propagate_down, bottom)

    def _sum_of(self, parts: Sequence[Blob]) -> Sum | None:
        """Return what adds these gradients up in the first one's layout, None where plain arrays serve best."""
        if len(parts) not in self._sums:
            self._sums[len(parts)] = self._make_sum(parts)
        return self._sums[len(parts)]

    def _make_sum(self, parts: Sequence[Blob]) -> Sum | None:
        engine = engine_of(self)
        first = next((blob for blob in parts if isinstance(blob.diff_values.form, Memory)), None)
        if first is None:
            return None
        try:
            return Sum(engine, layout_of(engine, first.diff_values, first.shape), [1.0] * len(parts), gradient=True)
        except NoFastForm:
            return None


register("Split", OnednnSplit, engine="onednn")
