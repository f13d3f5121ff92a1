"""Accuracy by kernels; with a second top, the accuracy per class, by the reference form."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.engines.cuda.engine import engine_of
from scaffe.engines.cuda.report import ignoring
from scaffe.engines.cuda.softmax_loss import mean_over_labels
from scaffe.layers.accuracy import Accuracy
from scaffe.layers.layer import Blobs, register


class CudaAccuracy(Accuracy):
    """Accuracy of scores (outer x classes x inner) against labels; the result stays on the device."""

    @property
    def capturable(self) -> bool:  # type: ignore[override]
        """Whether no pass needs a count of labels on the host."""
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

    def _total(self, labels: Any) -> float:
        """Return the divisor of the hits; 0 stands for the number of labels not ignored, counted by the kernel."""
        if self.ignore is None:
            return float(max(1, self.context.total(labels.size)))
        if self.context.size == 1:
            return 0.0
        return max(1.0, self.context.allsum(float((labels != self.ignore).sum())))


register("Accuracy", CudaAccuracy, engine="cuda")
