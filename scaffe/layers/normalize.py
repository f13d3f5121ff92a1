"""Normalize: values divided by their norm over the channels, or over the whole sample, times a learned scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.blob import around
from scaffe.blobs.fillers import given_or_constant
from scaffe.layers.layer import Blobs, Layer, register


class NormDivision(Layer):
    """x / sqrt(sum of x^2 + eps) over the channels of a pixel, or over all values of a sample; base of two layers."""

    across_spatial = True
    eps = 0.0

    def set_view(self, bottom: Blobs) -> None:
        """Note the view (N x C x inner) of the bottom."""
        shape = bottom[0].shape
        if len(shape) < 2:
            raise self.shape_error(f"needs a bottom with channels on axis 1, got shape {shape}")
        self.view = around(shape, 1)

    def divide(self, x: Any, out: Any) -> None:
        """Write the quotients of x (N x C x inner) into `out`, and keep the norms."""
        sums = self.xp.einsum("ncs,ncs->n" if self.across_spatial else "ncs,ncs->ns", x, x)
        norm = self.xp.sqrt(sums + self.eps)
        self.norm = norm[:, None, None] if self.across_spatial else norm[:, None, :]
        self.xp.divide(x, self.norm, out=out)

    def divide_back(self, quotient: Any, dy: Any, dx: Any) -> None:
        """Write into dx the gradient (dy - q (q . dy)) / norm, q the quotients."""
        product = self.xp.einsum("ncs,ncs->n" if self.across_spatial else "ncs,ncs->ns", quotient, dy)
        spread = product[:, None, None] if self.across_spatial else product[:, None, :]
        dx[...] = (dy - quotient * spread) / self.norm


class Normalize(NormDivision):
    """y = scale x / sqrt(sum of x^2 + eps), of `norm_param`; x and y (N x C x ...).

    The sum is over a sample, or over a pixel's channels without `across_spatial`. scale, 1 at first, is a parameter:
    one number, or (C) without `channel_shared`. Of SSD; Liu et al. 2015 (ParseNet), section 3.3.
    """

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.norm_param
        self.set_view(bottom)
        self.across_spatial, self.shared, self.eps = param.across_spatial, param.channel_shared, param.eps
        filler = given_or_constant(param, 1, "scale_filler")
        self.add_blob(() if self.shared else (bottom[0].shape[1],), filler)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        self.set_view(bottom)
        if not self.shared and self.blobs[0].shape != (self.view[1],):
            raise self.shape_error(
                f"bottom has shape {bottom[0].shape}, but there are scales for {self.blobs[0].count} channels"
            )
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        x, y = bottom[0].array.reshape(self.view), top[0].array.reshape(self.view)
        self.quotient = self.buffer("quotient", x.shape, x.dtype)
        self.divide(x, self.quotient)
        self.xp.multiply(self.quotient, self._scale(), out=y)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        dy = top[0].diff_array.reshape(self.view)
        if self.param_propagate_down[0]:
            diff = self.blobs[0].diff_array
            diff += (dy * self.quotient).sum(axis=None if self.shared else (0, 2))
        if propagate_down[0]:
            self.divide_back(self.quotient, dy * self._scale(), bottom[0].diff_array.reshape(self.view))

    def _scale(self) -> Any:
        return self.blobs[0].array.reshape(1, -1, 1)


register("Normalize", Normalize)
