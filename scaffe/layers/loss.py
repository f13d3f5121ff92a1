"""Loss: what the loss layers have in common."""

from __future__ import annotations

from typing import Any

from scaffe.layers.layer import Blobs, Layer


class Loss(Layer):
    """A prediction and its label give one number, this rank's part of the mean over the global batch.

    Each rank divides by the normaliser of the global batch, so that the losses and the gradients of all
    ranks add up to those of one rank with the whole batch.
    """

    bottoms = (2, 2)
    bottom_names = "the prediction, labels"
    summed_tops = 1
    makes_top = True

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        if not self.param.loss_weight:
            self.param.loss_weight.append(1)  # as Caffe does, so that stored nets say it too
        loss = self.param.loss_param
        self.ignore = loss.ignore_label if loss.HasField("ignore_label") else None
        self.normalization = loss.normalization
        if loss.HasField("normalize") and not loss.HasField("normalization"):
            self.normalization = loss.VALID if loss.normalize else loss.BATCH_SIZE

    def allows_force_backward(self, bottom_index: int) -> bool:
        return bottom_index != 1

    def normalizer(self, outer: int, inner: int, kept: Any = None) -> float:
        """Return what the global batch's loss is divided by, at least 1.

        `outer` and `inner` are this rank's labels before and after the class axis, `kept` a mask of those not
        ignored. All ranks call this, once a forward pass.
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
