"""Silence: bottoms that are not used otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.layer import ANY, Blobs, Layer, register


class Silence(Layer):
    """Read the bottoms, so that they are no outputs of the net; there is no top, and the gradients are 0."""

    bottoms = (1, ANY[1])
    tops = (0, 0)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        pass

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        pass

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        for blob, down in zip(bottom, propagate_down, strict=True):
            if down:
                blob.diff_array[...] = 0


register("Silence", Silence)
