"""Permute: axes in another order."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.layer import Blobs, Layer, register


class Permute(Layer):
    """y = x with axis `order[i]` as axis i; axes that `order` leaves out follow in their order. Of SSD."""

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        given, shape = list(self.param.permute_param.order), bottom[0].shape
        if len({*given}) < len(given) or any(axis >= len(shape) for axis in given):
            raise self.shape_error(f"order {given} of a bottom of shape {shape}; give each axis once, from 0 on")
        self.order = (*given, *(axis for axis in range(len(shape)) if axis not in given))
        self.back = [self.order.index(axis) for axis in range(len(shape))]
        top[0].reshape(*(shape[axis] for axis in self.order))

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        top[0].array[...] = bottom[0].array.transpose(self.order)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0]:
            bottom[0].diff_array[...] = top[0].diff_array.transpose(self.back)

    def mixes_samples(self, bottom: Blobs) -> str:
        order = self.param.permute_param.order
        return "" if not order or order[0] == 0 else "it moves axis 0"


register("Permute", Permute)
