"""SoftmaxWithLoss by kernels: the loss, its divisor and faults of labels stay on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.engines.cuda.engine import engine_of
from scaffe.engines.cuda.launcher import divisor
from scaffe.engines.cuda.report import ignoring
from scaffe.layers import softmax_loss
from scaffe.layers.layer import Blobs, register


def mean_over_labels(layer: Any, values: Any, labels: Any, divisor: float, top: Any) -> Any:
    """Write the sum of `values` over `divisor` into `top`; return the divisor, an array on the device.

    A divisor of 0 stands for the number of labels that are not ignored.
    """
    divided = layer.buffer("divided", (), np.float32)
    numbers = np.int64(labels.size), *ignoring(layer.ignore), np.float64(divisor), top, divided
    engine_of(layer).launch("losses", "mean_over_labels", (1,), values, labels, *numbers)
    return divided


class CudaSoftmaxWithLoss(softmax_loss.SoftmaxWithLoss):
    """SoftmaxWithLoss of scores (outer x classes x inner) against labels."""

    @property
    def capturable(self) -> bool:  # type: ignore[override]
        """Whether the ranks need no common count of labels."""
        return self.ignore is None or self.normalization != self.param.loss_param.VALID or self.context.size == 1

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        engine, (scores, self.labels) = engine_of(self), (blob.array for blob in bottom)
        engine.report.check(self, self.labels, bottom[1].num, self.classes, self.ignore)
        self.prob = top[1].array if len(top) > 1 else self.buffer("prob", scores.shape, scores.dtype)
        losses = self.buffer("losses", (self.outer * self.inner,), scores.dtype)
        numbers = *self.view[1:], *ignoring(self.ignore)
        engine.launch("losses", "softmax_loss", losses.shape, scores, self.labels, self.prob, losses, *numbers)
        self.divided = mean_over_labels(self, losses, self.labels, self._divisor(), top[0].array)

    def _divisor(self) -> float:
        """Return the divisor of the sum; 0 stands for the number of labels not ignored, counted by the kernel."""
        if self.ignore is None or self.normalization != self.param.loss_param.VALID:
            return self.normalizer(self.outer, self.inner)
        if self.context.size == 1:
            return 0.0
        return self.normalizer(self.outer, self.inner, self.labels != self.ignore)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        self.refuse_gradient(propagate_down, 1, "labels")
        if not propagate_down[0]:
            return
        dx = bottom[0].diff_array
        divisors = map(divisor, self.view[1:])
        numbers = *self.view[1:], *divisors, *ignoring(self.ignore), top[0].diff_array, self.divided
        engine_of(self).over("losses", "softmax_loss_back", dx.size, self.prob, self.labels, dx, *numbers)


register("SoftmaxWithLoss", CudaSoftmaxWithLoss, engine="cuda")
