"""Reduction: the sum or mean over the last axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from scaffe.layers.layer import Blobs, Layer, register


class Reduction(Layer):
    """y = coeff times the sum (SUM), the sum of |x| (ASUM) or of x^2 (SUMSQ), or the mean (MEAN) of x.

    x (M... x K...), y (M...): the reduction is over all axes from `axis` on. With axis 0, as a loss, y is this rank's
    part of the sum or mean over the global batch.
    """

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        self.operation = self.param.reduction_param.operation

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        axis, shape = self._axis(bottom), bottom[0].shape
        self.summed_tops = int(axis == 0)
        self.view = prod(shape[:axis]), prod(shape[axis:])
        top[0].reshape(*shape[:axis])

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        x, y = bottom[0].array.reshape(self.view), top[0].array.reshape(self.view[0])
        self.factor = self._factor()
        if self.operation == self.param.reduction_param.SUMSQ:
            y[...] = self.xp.einsum("ij,ij->i", x, x)
        elif self.operation == self.param.reduction_param.ASUM:
            self.xp.sum(self.xp.absolute(x), axis=1, out=y)
        else:
            self.xp.sum(x, axis=1, out=y)
        y *= self.factor

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        x, dx = bottom[0].array.reshape(self.view), bottom[0].diff_array.reshape(self.view)
        dy = top[0].diff_array.reshape(-1, 1) * self.factor
        if self.operation == self.param.reduction_param.SUMSQ:
            self.xp.multiply(x, 2 * dy, out=dx)
        elif self.operation == self.param.reduction_param.ASUM:
            self.xp.multiply(self.xp.sign(x), dy, out=dx)
        else:
            dx[...] = dy

    def _factor(self) -> float:
        """Return the factor of the sum."""
        param = self.param.reduction_param
        if self.operation != param.MEAN:
            return param.coeff
        count = self.view[1]
        return param.coeff / (self.context.total(count) if self.summed_tops else count)

    def mixes_samples(self, bottom: Blobs) -> str:
        over_ranks = self._axis(bottom) or self.loss_weight(0)
        return "" if over_ranks else "it reduces axis 0, and not for a loss"

    def _axis(self, bottom: Blobs) -> int:
        return self.canonical_axis(self.param.reduction_param.axis, bottom[0])


register("Reduction", Reduction)
