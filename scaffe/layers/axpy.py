"""Axpy: a factor for each channel of one blob, and the sum with another."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from scaffe.layers.layer import Blobs, Layer, register


class Axpy(Layer):
    """y = a x + z. Bottoms: a (N x C x 1 x ...), x and z (N x C x ...); y has the shape of x.

    The excitation of SENet and its shortcut: Hu et al. 2017, equation 4.
    """

    bottoms = (3, 3)
    bottom_names = "the factors, what they multiply, what is added"

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        (factors, x), shape = (blob.shape for blob in bottom[:2]), bottom[1].shape
        if len(shape) < 2 or shape != bottom[2].shape:
            raise self.shape_error(f"bottoms 1 and 2 have shapes {x} and {bottom[2].shape}; give both N x C x ...")
        if factors[:2] != shape[:2] or bottom[0].count != shape[0] * shape[1]:
            raise self.shape_error(
                f"bottom 0 has shape {factors}, bottom 1 {shape}; give a factor for each of its N x C channels"
            )
        self.view, self.spread = (*shape[:2], prod(shape[2:])), (*shape[:2], 1)
        top[0].reshape(*shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        y = top[0].array.reshape(self.view)
        self.xp.multiply(bottom[1].array.reshape(self.view), bottom[0].array.reshape(self.spread), out=y)
        y += bottom[2].array.reshape(self.view)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        dy = top[0].diff_array.reshape(self.view)
        if propagate_down[0]:
            sums = self.xp.einsum("ncs,ncs->nc", dy, bottom[1].array.reshape(self.view))
            bottom[0].diff_array[...] = sums.reshape(bottom[0].shape)
        if propagate_down[1]:
            dx = bottom[1].diff_array.reshape(self.view)
            self.xp.multiply(dy, bottom[0].array.reshape(self.spread), out=dx)
        if propagate_down[2]:
            bottom[2].diff_array[...] = top[0].diff_array


register("Axpy", Axpy)
