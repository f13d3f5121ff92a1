"""SoftmaxWithLoss by kernels; labels are checked, and losses added, by the reference form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.layers import softmax_loss
from scaffe.layers.layer import Blobs, register


class CudaSoftmaxWithLoss(softmax_loss.SoftmaxWithLoss):
    """SoftmaxWithLoss."""

    def _softmax(self, scores: Any, prob: Any) -> None:
        self.context.engine.launch("softmax", "softmax", (self.outer * self.inner,), scores, prob, *self.view[1:])

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        self.refuse_gradient(propagate_down, 1, "labels")
        if not propagate_down[0]:
            return
        dx = bottom[0].diff_array
        kept = np.uint64(0) if self.kept is None else self.kept
        arrays = self.prob, self.labels, kept, dx
        numbers = *self.view[1:], top[0].diff_array, float(self.divisor)
        self.context.engine.over("softmax", "softmax_loss_back", dx.size, *arrays, *numbers)


register("SoftmaxWithLoss", CudaSoftmaxWithLoss, engine="cuda")
