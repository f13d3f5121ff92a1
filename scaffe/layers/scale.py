"""Scale: multiplication by an operand that is broadcast over some axes, and an optional bias."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.blob import Blob
from scaffe.blobs.fillers import given_or_constant
from scaffe.layers.broadcast import Broadcast
from scaffe.layers.layer import Blobs, register


class Scale(Broadcast):
    """y = a x, or a x + b with `bias_term`; a and b are broadcast over x (outer x operand x inner).

    a is the second bottom, or a parameter with x's `num_axes` axes from `axis` on, 1 at first. b is a parameter with
    the shape of a, 0 at first. May work in place.
    """

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.scale_param
        if len(bottom) == 1:
            self.add_operand(bottom, param.axis, param.num_axes, given_or_constant(param, 1))
        self.bias = self.add_blob(self.operand(bottom).shape, param.bias_filler) if param.bias_term else None

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        self.set_view(bottom, self.param.scale_param.axis)
        if self.bias and self.bias.shape != self.operand(bottom).shape:
            raise self.shape_error(f"bottom 1 has shape {bottom[1].shape}, but the bias {self.bias.shape}")
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        self.input = self.kept_input(bottom[0], top[0]).reshape(self.view)
        y = top[0].array.reshape(self.view)
        self.xp.multiply(self.input, self.spread(self.operand(bottom).array), out=y)
        if self.bias:
            y += self.spread(self.bias.array)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        dy, learned = top[0].diff_array.reshape(self.view), len(bottom) == 1
        if self.bias and self.param_propagate_down[-1]:
            self.add_diff(dy, self.bias, overwrite=False)
        if self.param_propagate_down[0] if learned else propagate_down[1]:
            product = self.xp.multiply(dy, self.input, out=self._scratch(bottom[0], top[0]))
            self.add_diff(product, self.operand(bottom), overwrite=not learned)
        if propagate_down[0]:
            dx = bottom[0].diff_array.reshape(self.view)
            self.xp.multiply(dy, self.spread(self.operand(bottom).array), out=dx)

    def _scratch(self, bottom: Blob, top: Blob) -> Any:
        """Return scratch memory of x's shape: the memory of x's gradient, which is written last, as in Caffe."""
        if top is bottom:
            return self.buffer("product", self.view, bottom.array.dtype)
        return bottom.diff_array.reshape(self.view)

    def mixes_samples(self, bottom: Blobs) -> str:
        return self.operand_mixes_samples(bottom, self.param.scale_param.axis)


register("Scale", Scale)
