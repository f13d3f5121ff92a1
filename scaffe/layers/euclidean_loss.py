"""EuclideanLoss: half the mean squared distance between two blobs."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.layer import Blobs, register
from scaffe.layers.loss import LossLayer


class EuclideanLoss(LossLayer):
    """loss = sum of (a - b)^2 / (2 N).

    Bottoms: a, b (N x ...), which both have gradients. Top: loss (). N counts the global batch.
    """

    capturable = True

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        a, b = bottom
        if a.num != b.num or a.count != b.count:
            raise self.shape_error(f"bottoms have shapes {a.shape} and {b.shape}; give both the same shape")
        top[0].reshape()

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        a, b = (blob.array.reshape(-1) for blob in bottom)
        self.difference = self.buffer("difference", a.shape, a.dtype)
        self.xp.subtract(a, b, out=self.difference)
        self.samples = max(1, self.context.total(bottom[0].num))
        top[0].array[...] = self.difference.dot(self.difference) / (2 * self.samples)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        for blob, down, sign in zip(bottom, propagate_down, (1, -1), strict=True):
            if down:
                scale = top[0].diff_array * (sign / self.samples)
                self.xp.multiply(self.difference, scale, out=blob.diff_array.reshape(-1))

    def allows_force_backward(self, bottom_index: int) -> bool:
        return True


register("EuclideanLoss", EuclideanLoss)
