"""Reshaped: the base of layers whose top is a view of the bottom in another shape."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.layer import Blobs, Layer


class Reshaped(Layer):
    """y = x in the shape that `reshape` sets: a view, not a copy."""

    capturable = True
    views = True

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        top[0].view(bottom[0])

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0]:
            bottom[0].diff_array[...] = top[0].diff_array.reshape(bottom[0].shape)
