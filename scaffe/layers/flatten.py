"""Flatten: several axes as one axis."""

from __future__ import annotations

from math import prod

from scaffe.layers.layer import Blobs, register
from scaffe.layers.reshaped import Reshaped


class Flatten(Reshaped):
    """y = x with the axes from `axis` to `end_axis`, both included, as one axis; a view of x."""

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        param, shape = self.param.flatten_param, bottom[0].shape
        first, last = (self.canonical_axis(axis, bottom[0]) for axis in (param.axis, param.end_axis))
        if first > last:
            raise self.error(f"flatten_param has axis {param.axis} behind end_axis {param.end_axis}, shape {shape}")
        top[0].reshape(*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :])

    def mixes_samples(self, bottom: Blobs) -> str:
        axis = self.canonical_axis(self.param.flatten_param.axis, bottom[0])
        return "" if axis else "it joins axis 0 with others"


register("Flatten", Flatten)
