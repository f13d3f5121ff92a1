"""MultinomialLogisticLoss: cross entropy of probabilities, with integer labels."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.labels import check_order, class_indices
from scaffe.layers.layer import Blobs, register
from scaffe.layers.loss import LossLayer

SMALLEST = 1e-20  # Caffe's lower bound of a probability; it keeps the loss finite


class MultinomialLogisticLoss(LossLayer):
    """loss = -sum of log(p[label]) / N.

    Bottoms: probabilities p (N x classes...), all axes but the first counting as classes; labels (N). Top: loss ().
    N counts the global batch. Raise LabelError for a label that is no class.
    """

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        p, labels = bottom
        check_order(self, bottom[0], labels, labels.num)
        if not p.shape or labels.count != p.num:
            raise self.shape_error(f"probabilities of shape {p.shape} need one label per sample, got {labels.shape}")
        self.classes = p.count // max(1, p.num)
        top[0].reshape()

    def labels_taken(self) -> tuple[int, int | None]:
        return self.classes, None

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        xp, p = self.xp, bottom[0].array.reshape(-1, self.classes)
        labels, _ = class_indices(self, bottom[1], self.classes, None)
        self.hit = xp.arange(len(p)), labels.reshape(-1)
        self.chosen = xp.maximum(p[self.hit], SMALLEST)
        self.samples = max(1, self.context.total(len(p)))
        top[0].array[...] = -xp.log(self.chosen).sum() / self.samples

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        self.refuse_gradient(propagate_down, 1, "labels")
        if propagate_down[0]:
            dp = bottom[0].diff_array.reshape(-1, self.classes)
            dp[...] = 0
            dp[self.hit] = -top[0].diff_array / self.samples / self.chosen


register("MultinomialLogisticLoss", MultinomialLogisticLoss)
