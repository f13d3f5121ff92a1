"""Threshold: whether each element is above a bound."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.layer import Blobs, Layer, register


class Threshold(Layer):
    """y = 1 for x > threshold, else 0. There is no gradient. May work in place."""

    in_place = True

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        self.threshold = self.param.threshold_param.threshold

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        top[0].array[...] = bottom[0].array > self.threshold

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        self.refuse_gradient(propagate_down, 0, "values")

    def allows_force_backward(self, bottom_index: int) -> bool:
        return False


register("Threshold", Threshold)
