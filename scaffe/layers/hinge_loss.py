"""HingeLoss: the one-versus-all hinge loss."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.labels import check_order, class_indices
from scaffe.layers.layer import Blobs, register
from scaffe.layers.loss import LossLayer


class HingeLoss(LossLayer):
    """loss = sum of max(0, 1 - t x) / N, or of its square with `norm: L2`; t is 1 for the label's class, else -1.

    Bottoms: scores x (N x classes...), all axes but the first counting as classes; labels (N). Top: loss (). N counts
    the global batch. Raise LabelError for a label that is no class.
    """

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        super().setup(bottom, top)
        self.squared = self.param.hinge_loss_param.norm == self.param.hinge_loss_param.L2

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        scores, labels = bottom
        check_order(self, bottom[0], labels, labels.num)
        if not scores.shape or labels.count != scores.num:
            raise self.shape_error(f"scores of shape {scores.shape} need one label per sample, got {labels.shape}")
        self.classes = scores.count // max(1, scores.num)
        top[0].reshape()

    def labels_taken(self) -> tuple[int, int | None]:
        return self.classes, None

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        xp, x = self.xp, bottom[0].array.reshape(-1, self.classes)
        labels, _ = class_indices(self, bottom[1], self.classes, None)
        self.hit = xp.arange(len(x)), labels.reshape(-1)
        loss = self.loss = self.buffer("loss", x.shape, x.dtype)
        loss[...] = x
        loss[self.hit] *= -1
        loss += 1
        xp.maximum(loss, 0, out=loss)
        self.samples = max(1, self.context.total(len(x)))
        top[0].array[...] = ((loss * loss) if self.squared else loss).sum() / self.samples

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        self.refuse_gradient(propagate_down, 1, "labels")
        if not propagate_down[0]:
            return
        dx = bottom[0].diff_array.reshape(-1, self.classes)
        if self.squared:
            self.xp.multiply(self.loss, 2, out=dx)
        else:
            self.xp.sign(self.loss, out=dx)
        dx[self.hit] *= -1
        dx *= top[0].diff_array / self.samples


register("HingeLoss", HingeLoss)
