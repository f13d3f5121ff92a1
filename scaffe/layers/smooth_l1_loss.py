"""SmoothL1Loss: the absolute distance of two blobs, a square near 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.layers.layer import Blobs, register
from scaffe.layers.loss import LossLayer


class SmoothL1Loss(LossLayer):
    """loss = sum of v s(u (a - b)) / N, s(d) = sigma^2 d^2 / 2 for |d| < 1 / sigma^2, else |d| - 1 / (2 sigma^2).

    Bottoms: a, b (N x ...), which both have gradients, and optionally weights u and v of their shape. Top: loss ().
    N counts the global batch. Girshick 2015 (Fast R-CNN), equation 3.
    """

    bottoms = (2, 4)
    bottom_names = "a prediction, its target, and inside and outside weights"

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        super().setup(bottom, top)
        self.squared = self.param.smooth_l1_loss_param.sigma**2
        if len(bottom) == 3:
            raise self.error("has one blob of weights, as R-FCN's; give both inside and outside weights, or none")
        if not self.squared > 0:
            raise self.error(f"sigma must be above 0, got {self.param.smooth_l1_loss_param.sigma:g}")

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        a = bottom[0]
        for blob in bottom[1:]:
            if blob.num != a.num or blob.count != a.count:
                raise self.shape_error(f"bottoms have shapes {a.shape} and {blob.shape}; give all the same shape")
        top[0].reshape()

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        xp = self.xp
        a, b, *weights = (blob.array.reshape(-1) for blob in bottom)
        self.difference = (a - b) * (weights[0] if weights else 1)
        size = xp.absolute(self.difference)
        errors = xp.where(size < 1 / self.squared, 0.5 * self.squared * size * size, size - 0.5 / self.squared)
        self.samples = max(1, self.context.total(bottom[0].num))
        top[0].array[...] = (errors * (weights[1] if weights else 1)).sum() / self.samples

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        for index in range(2, len(bottom)):
            self.refuse_gradient(propagate_down, index, "weights")
        if not any(propagate_down):
            return
        slope: Any = self.xp.clip(self.squared * self.difference, -1, 1)
        for weights in bottom[2:]:
            slope *= weights.array.reshape(-1)
        for blob, down, sign in zip(bottom, propagate_down[:2], (1, -1), strict=False):
            if down:
                scale = top[0].diff_array * (sign / self.samples)
                self.xp.multiply(slope, scale, out=blob.diff_array.reshape(-1))

    def allows_force_backward(self, bottom_index: int) -> bool:
        return bottom_index < 2


register("SmoothL1Loss", SmoothL1Loss)
