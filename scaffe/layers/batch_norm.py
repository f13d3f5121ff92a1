"""BatchNorm: batch normalisation, each channel to mean 0 and variance 1."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from scaffe.blob import Shape, around
from scaffe.context import TEST
from scaffe.layers.layer import Blobs, Layer, register
from scaffe.proto import FillerParameter


class BatchNorm(Layer):
    """y = (x - mean) / sqrt(variance + eps), per channel (axis 1), over this rank's rows of the batch.

    x, y (N x C x ...); a bottom with one axis is one channel. In training, mean and variance are those of the batch,
    and are added to running sums: blob 0 (C) sums means, blob 1 (C) sums variances, blob 2 (1) sums the weights. With
    `use_global_stats`, the default in the TEST phase, mean and variance are blobs 0 and 1 divided by blob 2. As in
    Caffe there is no scale and shift, which a Scale layer adds. May work in place. Ioffe and Szegedy 2015,
    algorithms 1 and 2.
    """

    in_place = True
    statistics = (0, 1, 2)

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.batch_norm_param
        given = param.HasField("use_global_stats")
        self.use_sums = param.use_global_stats if given else self.context.phase == TEST
        self.fraction, self.eps = param.moving_average_fraction, param.eps
        if not 0 <= self.fraction <= 1:
            raise self.error(f"batch_norm_param has moving_average_fraction {self.fraction:g}; give one from 0 to 1")
        if not self.eps >= 0:
            raise self.error(f"batch_norm_param has eps {self.eps:g}; give 0 or more")
        channels = self._view(bottom[0].shape)[1]
        for count in (channels, channels, 1):
            self.add_blob((count,), FillerParameter())

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        shape = bottom[0].shape
        self.view = self._view(shape)
        if self.view[1] != self.blobs[0].count:
            raise self.shape_error(f"bottom has shape {shape}, but there are sums for {self.blobs[0].count} channels")
        top[0].reshape(*shape)

    def _view(self, shape: Shape) -> tuple[int, int, int]:
        return around(shape, 1) if len(shape) > 1 else (prod(shape), 1, 1)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        xp, x = self.xp, bottom[0].array.reshape(self.view)
        y = self.normalised = self.buffer("normalised", x.shape, x.dtype)  # following layers may overwrite the top
        mean, variance = self.global_statistics() if self.use_sums else (x.mean(axis=(0, 2)), None)
        xp.subtract(x, mean[:, None], out=y)
        if variance is None:
            variance = self._variance(y)
            self.remember(mean, variance)
        self.deviation = xp.sqrt(variance + self.eps)[:, None]
        y /= self.deviation
        top[0].array.reshape(self.view)[...] = y

    def global_statistics(self) -> tuple[Any, Any]:
        """Return mean and variance (C) by the running sums, 0 before the first batch."""
        means, variances, (weight,) = (blob.array for blob in self.blobs)
        scale = 0 if weight == 0 else 1 / weight
        return means * scale, variances * scale

    def _variance(self, centred: Any) -> Any:
        """Return the mean square of each channel (C) of values with mean 0 (N x C x inner)."""
        return self.xp.einsum("ncs,ncs->c", centred, centred) / (centred.shape[0] * centred.shape[2])

    def remember(self, mean: Any, variance: Any) -> None:
        """Multiply the running sums by moving_average_fraction and add the batch's mean and unbiased variance."""
        count = self.view[0] * self.view[2]
        news = mean, variance * (count / (count - 1) if count > 1 else 1), 1
        for blob, new in zip(self.blobs, news, strict=True):
            sums = blob.array
            sums *= self.fraction
            sums += new

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """Compute dx = (dy - mean(dy) - y mean(y dy)) / deviation, where the batch's own statistics were used."""
        if not propagate_down[0]:
            return
        dy, dx = top[0].diff_array.reshape(self.view), bottom[0].diff_array.reshape(self.view)
        if self.use_sums:
            self.xp.divide(dy, self.deviation, out=dx)
            return
        y, count = self.normalised, self.view[0] * self.view[2]
        mean = dy.mean(axis=(0, 2))[:, None]
        slope = (self.xp.einsum("ncs,ncs->c", dy, y) / count)[:, None]
        self.xp.subtract(dy, mean, out=dx)
        dx -= self.xp.multiply(y, slope, out=self.buffer("sloped", y.shape, y.dtype))
        dx /= self.deviation


register("BatchNorm", BatchNorm)
