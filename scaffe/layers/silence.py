"""Silence: a user for tops that nobody looks at."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.layer import ANY, Blobs, Layer, register


class Silence(Layer):
    """Take any bottoms and give nothing, so that they are no outputs of the net; their gradients are 0."""

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
