"""Bias: addition of an operand that is broadcast over some axes."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.broadcast import Broadcast
from scaffe.layers.layer import Blobs, register


class Bias(Broadcast):
    """y = x + b, b broadcast: (outer x operand x inner) + (operand).

    b is the second bottom, or a parameter with x's `num_axes` axes from `axis` on, filled by `filler`. May work in
    place.
    """

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.bias_param
        if len(bottom) == 1:
            self.add_operand(bottom, param.axis, param.num_axes, param.filler)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        self.set_view(bottom, self.param.bias_param.axis)
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        x, y = bottom[0].array.reshape(self.view), top[0].array.reshape(self.view)
        self.xp.add(x, self.spread(self.operand(bottom).array), out=y)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        dy, learned = top[0].diff_array, len(bottom) == 1
        if self.param_propagate_down[0] if learned else propagate_down[1]:
            self.add_diff(dy.reshape(self.view), self.operand(bottom), overwrite=not learned)
        if propagate_down[0] and top[0] is not bottom[0]:
            bottom[0].diff_array[...] = dy

    def mixes_samples(self, bottom: Blobs) -> str:
        return self.operand_mixes_samples(bottom, self.param.bias_param.axis)


register("Bias", Bias)
