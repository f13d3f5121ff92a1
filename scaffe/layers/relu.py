"""ReLU: the rectified linear unit, leaky with a negative_slope."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.layer import Blobs, Layer, register


class ReLU(Layer):
    """y = max(x, 0) + negative_slope min(x, 0) for each element; x and y of any shape. May work in place.

    In place the gradient follows the sign of y, as in Caffe: a negative `negative_slope` gives a wrong gradient there.
    """

    in_place = True

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        self.slope = self.param.relu_param.negative_slope

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        x, y = bottom[0].array, top[0].array
        if self.slope:
            y[...] = self.xp.where(x > 0, x, self.slope * x)
        else:
            self.xp.maximum(x, 0, out=y)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        # In place the bottom holds y, which has the sign of x for any slope of 0 or more.
        positive, dy, dx = bottom[0].array > 0, top[0].diff_array, bottom[0].diff_array
        if self.slope:
            dx[...] = self.xp.where(positive, dy, self.slope * dy)
        else:
            self.xp.multiply(dy, positive, out=dx)


register("ReLU", ReLU)
