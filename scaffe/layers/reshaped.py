"""Reshaped: what the layers that only look at their bottom in another shape have in common."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.layer import Blobs, Layer


class Reshaped(Layer):
    """Let the top be the bottom's values in the shape that `reshape` gave it."""

    capturable = True
    views = True

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        top[0].view(bottom[0])

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0]:
            bottom[0].diff_array[...] = top[0].diff_array.reshape(bottom[0].shape)
