"""BN: the batch normalisation with scale and shift of SegNet's, ENet's and PSPNet's Caffe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.blob import around
from scaffe.blobs.fillers import given_or_constant
from scaffe.context import TEST
from scaffe.layers.layer import Blobs, Layer, register
from scaffe.proto import FillerParameter

SEGNETS = ("scale_filler", "shift_filler", "bn_mode")
PSPNETS = ("slope_filler", "bias_filler", "momentum", "eps", "frozen")
SEGNETS_EPS = 1e-9


class BN(Layer):
    """y = scale (x - mean) / sqrt(variance + eps) + shift, per channel (axis 1), over this rank's rows of the batch.

    Two forks have this type; the fields of `bn_param` tell whose it is, and one of either must be there.

    SegNet's and ENet's (scale_filler, shift_filler, bn_mode): parameters scale and shift (1 x C x 1 x 1). Mean and
    variance are the batch's, in both phases; with `bn_mode: INFERENCE` y = scale x + shift.

    PSPNet's (slope_filler, bias_filler, momentum, eps, frozen): parameters scale, shift, mean and variance. In training
    mean and variance are the batch's, and the stored ones become momentum times themselves plus 1 - momentum times
    those; in the TEST phase, and if `frozen`, they are the stored ones. `frozen` has no gradients of scale and shift.

    May work in place. Ioffe and Szegedy 2015, algorithms 1 and 2.
    """

    in_place = True

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param, shape = self.param.bn_param, bottom[0].shape
        if len(shape) < 2:
            raise self.shape_error(f"needs a bottom with channels on axis 1, got shape {shape}")
        segnets, pspnets = (any(map(param.HasField, fields)) for fields in (SEGNETS, PSPNETS))
        if segnets == pspnets:
            raise self.error(
                f"is SegNet's and ENet's with {', '.join(SEGNETS)}, PSPNet's with {', '.join(PSPNETS)}; "
                f"bn_param has {'fields of both' if segnets else 'none of these'}: write those of its fork"
            )
        if not (param.eps >= 0 and 0 <= param.momentum <= 1):
            raise self.error(
                f"bn_param needs eps of 0 or more and momentum from 0 to 1, got {param.eps:g}, {param.momentum:g}"
            )
        sizes = 1, shape[1], 1, 1
        self.add_blob(sizes, given_or_constant(param, 1, "scale_filler" if segnets else "slope_filler"))
        self.add_blob(sizes, given_or_constant(param, 0, "shift_filler" if segnets else "bias_filler"))
        self.eps = SEGNETS_EPS if segnets else param.eps
        self.stored = pspnets
        self.affine = segnets and param.bn_mode == param.INFERENCE
        self.fixed = pspnets and (param.frozen or self.context.phase == TEST)
        if pspnets:
            self.statistics = (2, 3)
            for value in (0, 1 if param.frozen else 0):
                self.add_blob(sizes, FillerParameter(type="constant", value=value))

    @property
    def learns(self) -> Sequence[bool]:
        """Whether scale and shift need gradients."""
        return (False, False) if self.param.bn_param.frozen else self.param_propagate_down[:2]

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        shape = bottom[0].shape
        if len(shape) < 2 or shape[1] != self.blobs[0].count:
            raise self.shape_error(f"bottom has shape {shape}, but the scales are for {self.blobs[0].count} channels")
        self.view = around(shape, 1)
        top[0].reshape(*shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        x, y = bottom[0].array.reshape(self.view), top[0].array.reshape(self.view)
        scale, shift = (blob.array.reshape(1, -1, 1) for blob in self.blobs[:2])
        self.normalised = self.buffer("normalised", x.shape, x.dtype)
        if self.affine:
            self.normalised[...] = x
        else:
            self._normalise(x, self.normalised)
        self.xp.multiply(self.normalised, scale, out=y)
        y += shift

    def _normalise(self, x: Any, out: Any) -> None:
        xp = self.xp
        if self.fixed:
            mean, variance = (blob.array.reshape(-1) for blob in self.blobs[2:])
        else:
            mean = x.mean(axis=(0, 2), dtype=x.dtype)
        xp.subtract(x, mean[:, None], out=out)
        if not self.fixed:
            variance = xp.einsum("ncs,ncs->c", out, out) / (x.shape[0] * x.shape[2])
            self.remember(mean, variance)
        self.deviation = xp.sqrt(variance + self.eps)[:, None]
        out /= self.deviation

    def remember(self, *news: Any) -> None:
        """Move the stored mean and variance towards the batch's."""
        if not self.stored:
            return
        momentum = self.param.bn_param.momentum
        for blob, new in zip(self.blobs[2:], news, strict=True):
            old = blob.array.reshape(-1)
            old *= momentum
            old += (1 - momentum) * new

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """Compute dx = scale (dy - mean(dy) - n mean(n dy)) / deviation, n the normalised values of the batch."""
        xp, dy = self.xp, top[0].diff_array.reshape(self.view)
        sums = dy.sum(axis=(0, 2)), xp.einsum("ncs,ncs->c", dy, self.normalised)
        for blob, learns, total in zip(self.blobs[:2], self.learns, sums[::-1], strict=True):
            if learns:
                diff = blob.diff_array.reshape(-1)
                diff += total
        if propagate_down[0]:
            self._differentiate(dy, sums, bottom[0].diff_array.reshape(self.view))

    def _differentiate(self, dy: Any, sums: tuple[Any, Any], dx: Any) -> None:
        count, scale = self.view[0] * self.view[2], self.blobs[0].array.reshape(-1, 1)
        if self.affine or self.fixed:
            self.xp.multiply(dy, scale if self.affine else scale / self.deviation, out=dx)
            return
        sloped = self.xp.multiply(self.normalised, (sums[1] / count)[:, None], out=self.buffer("s", dx.shape, dx.dtype))
        self.xp.subtract(dy, (sums[0] / count)[:, None], out=dx)
        dx -= sloped
        dx *= scale / self.deviation


register("BN", BN)
