"""LossLayer: the base of the loss layers."""

from __future__ import annotations

from typing import Any

from scaffe.layers.layer import Blobs, Layer


class LossLayer(Layer):
    """Compute one number from a prediction and its labels: this rank's part of the loss of the global batch.

    Each rank divides by the normaliser of the global batch. The losses and gradients of all ranks then add up to
    those of one rank with the whole batch.
    """

    bottoms = (2, 2)
    bottom_names = "the prediction, labels"
    summed_tops = 1
    makes_top = True

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        if not self.param.loss_weight:
            self.param.loss_weight.append(1)  # as Caffe does, so that saved nets hold it
        loss = self.param.loss_param
        self.ignore = loss.ignore_label if loss.HasField("ignore_label") else None
        self.normalization = loss.normalization
        if loss.HasField("normalize") and not loss.HasField("normalization"):
            self.normalization = loss.VALID if loss.normalize else loss.BATCH_SIZE

    def allows_force_backward(self, bottom_index: int) -> bool:
        return bottom_index != 1

    def normalizer(self, outer: int, inner: int, kept: Any = None) -> float:
        """Return the divisor of the global batch's loss, at least 1. Collective: once a forward pass.

        This rank has outer x inner labels: `outer` before the class axis, `inner` after it. `kept` is a mask of the
        labels that are not ignored.
        """
        loss = self.param.loss_param
        if self.normalization == loss.NONE:
            return 1.0
        if self.normalization == loss.BATCH_SIZE:
            count: float = self.context.total(outer)
        elif self.normalization == loss.VALID and kept is not None:
            count = self.context.allsum(float(kept.sum()))
        else:
            count = self.context.total(outer * inner)
        return max(1.0, float(count))
