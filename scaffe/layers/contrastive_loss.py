"""ContrastiveLoss: small distances for similar pairs, distances above a margin for dissimilar ones."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.layer import Blobs, register
from scaffe.layers.loss import LossLayer

CLOSE = 1e-4  # added to a distance before dividing by it, as in Caffe, so that distance 0 gives a finite gradient


class ContrastiveLoss(LossLayer):
    """loss = sum over pairs of (d^2 if similar, else max(margin - d, 0)^2) / (2 N), where d = |a_n - b_n|.

    Bottoms: a, b (N x C); labels (N), not 0 for similar pairs. Top: loss (). N counts the global batch. With
    `legacy_version` a dissimilar pair adds max(margin - d^2, 0). Hadsell et al. 2006, section 2.1.
    """

    bottoms = (3, 3)
    bottom_names = "a, b, are they alike"

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        super().setup(bottom, top)
        param = self.param.contrastive_loss_param
        self.margin, self.legacy = param.margin, param.legacy_version

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        a, b, alike = bottom
        if len(a.shape) < 2 or a.shape != b.shape or a.count != a.num * a.channels or alike.count != a.num:
            raise self.shape_error(
                f"needs two bottoms (N x C) and a label for each pair, got {a.shape}, {b.shape} and {alike.shape}"
            )
        self.view = a.num, a.channels
        top[0].reshape()

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        xp, (a, b) = self.xp, (blob.array.reshape(self.view) for blob in bottom[:2])
        self.difference = xp.subtract(a, b, out=self.buffer("difference", a.shape, a.dtype))
        self.alike = bottom[2].array.reshape(-1).astype(int) != 0
        squares = xp.einsum("nc,nc->n", self.difference, self.difference)
        self.distance = xp.sqrt(squares)
        self.gap = xp.maximum(self.margin - (squares if self.legacy else self.distance), 0)
        losses = xp.where(self.alike, squares, self.gap if self.legacy else self.gap * self.gap)
        self.samples = max(1, self.context.total(len(losses)))
        top[0].array[...] = losses.sum() / (2 * self.samples)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        self.refuse_gradient(propagate_down, 2, "labels")
        push = self.gap > 0 if self.legacy else self.gap / (self.distance + CLOSE)
        pull = self.xp.where(self.alike, 1, -push.astype(self.difference.dtype))
        pull *= top[0].diff_array / self.samples
        for blob, down, sign in zip(bottom, propagate_down, (1, -1, 0), strict=True):
            if down:
                self.xp.multiply(self.difference, sign * pull[:, None], out=blob.diff_array.reshape(self.view))

    def allows_force_backward(self, bottom_index: int) -> bool:
        return bottom_index != 2


register("ContrastiveLoss", ContrastiveLoss)
