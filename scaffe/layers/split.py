"""Split: one blob as the bottom of several layers."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.layer import ANY, Blobs, Layer, register


class Split(Layer):
    """y_i = x for each top, a view of x; dx = sum of the dy_i. Net inserts Splits where a top has several users."""

    tops = (1, ANY[1])
    views = True

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        for blob in top:
            blob.reshape(*bottom[0].shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        for blob in top:
            blob.view(bottom[0])

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        total = bottom[0].diff_array
        total[...] = top[0].diff_array
        for blob in top[1:]:
            total += blob.diff_array


register("Split", Split)
