"""Accuracy by kernels; with a top for each class it is the reference form, which asks the device for counts."""

from __future__ import annotations

import numpy as np

from scaffe.engines.cuda.engine import engine_of
from scaffe.engines.cuda.report import ignoring
from scaffe.engines.cuda.softmax_loss import mean_over_labels
from scaffe.layers.accuracy import Accuracy
from scaffe.layers.layer import Blobs, register


class CudaAccuracy(Accuracy):
    """Accuracy."""

    @property
    def capturable(self) -> bool:  # type: ignore[override]
        """Unless the host is asked to count labels."""
        return len(self.param.top) < 2 and (self.ignore is None or self.context.size == 1)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        if len(top) > 1:
            return super().forward(bottom, top)
        engine, (scores, labels) = engine_of(self), (blob.array for blob in bottom)
        engine.report.check(self, labels, bottom[1].num, self.classes, self.ignore)
        hit = self.buffer("hit", (self.outer * self.inner,), np.float32)
        numbers = *self.view[1:], self.top_k, *ignoring(self.ignore)
        engine.launch("losses", "hits", hit.shape, scores, labels, hit, *numbers)
        mean_over_labels(self, hit, labels, self._total(labels), top[0].array)

    def _total(self, labels) -> float:
        """Return by how many labels hits are divided, 0 for those that count, if this rank's are all there are."""
        if self.ignore is None:
            return float(max(1, self.context.total(labels.size)))
        if self.context.size == 1:
            return 0.0
        return max(1.0, self.context.allsum(float((labels != self.ignore).sum())))


register("Accuracy", CudaAccuracy, engine="cuda")
