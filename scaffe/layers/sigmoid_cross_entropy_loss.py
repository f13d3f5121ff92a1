"""SigmoidCrossEntropyLoss: cross entropy of the sigmoids of scores, with probabilities as targets."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.layer import Blobs, register
from scaffe.layers.loss import LossLayer
from scaffe.layers.sigmoid import sigmoid


class SigmoidCrossEntropyLoss(LossLayer):
    """loss = -sum of (t log(s) + (1 - t) log(1 - s)) / normaliser, where s = sigmoid(x).

    Bottoms: scores x (N x ...), targets t with as many elements. Top: loss (). The normalisation is BATCH_SIZE by
    default. Targets whose integer part is `ignore_label` do not count.
    """

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        super().setup(bottom, top)
        loss = self.param.loss_param
        if not (loss.HasField("normalization") or loss.HasField("normalize")):
            self.normalization = loss.BATCH_SIZE

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        x, targets = bottom
        if not x.shape or x.count != targets.count:
            raise self.shape_error(f"scores of shape {x.shape} need one target per score, got shape {targets.shape}")
        top[0].reshape()

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        xp, x = self.xp, bottom[0].array
        targets = bottom[1].array.reshape(x.shape)
        self.kept = None if self.ignore is None else targets.astype(int) != self.ignore
        # log1p(exp(-|x|)) neither overflows nor rounds small terms to 0.
        losses = xp.maximum(x, 0) - x * targets + xp.log1p(xp.exp(-xp.absolute(x)))
        if self.kept is not None:
            losses *= self.kept
        self.divisor = self.normalizer(bottom[0].num, x.size // max(1, bottom[0].num), self.kept)
        top[0].array[...] = losses.sum() / self.divisor

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        self.refuse_gradient(propagate_down, 1, "targets")
        if not propagate_down[0]:
            return
        dx = bottom[0].diff_array
        sigmoid(self.xp, bottom[0].array, dx)
        dx -= bottom[1].array.reshape(dx.shape)
        if self.kept is not None:
            dx *= self.kept
        dx *= top[0].diff_array / self.divisor


register("SigmoidCrossEntropyLoss", SigmoidCrossEntropyLoss)
