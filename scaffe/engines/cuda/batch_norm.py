"""BatchNorm by kernels: statistics, values, and gradients in one launch each."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.batch_norm import BatchNorm
from scaffe.layers.layer import Blobs, register


class CudaBatchNorm(BatchNorm):
    """BatchNorm."""

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        engine, x, (outer, channels, inner) = self.context.engine, bottom[0].array, self.view
        if self.use_sums:
            mean, variance = self.global_statistics()
        else:
            mean, variance = (self.buffer(name, (channels,), x.dtype) for name in ("mean", "variance"))
            engine.launch("batch_norm", "norm_statistics", (channels,), x, mean, variance, outer, channels, inner)
            self.remember(mean, variance)
        self.normalised = self.buffer("normalised", self.view, x.dtype)  # layers above may change the top in place
        self.deviation = self.xp.sqrt(variance + self.eps)[:, None]
        arrays = x, mean, self.deviation, self.normalised, top[0].array
        engine.over("batch_norm", "normalise", x.size, *arrays, channels, inner)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if self.use_sums or not propagate_down[0]:
            return super().backward(top, propagate_down, bottom)
        arrays = self.normalised, top[0].diff_array, self.deviation, bottom[0].diff_array
        self.context.engine.launch("batch_norm", "normalise_back", (self.view[1],), *arrays, *self.view)


register("BatchNorm", CudaBatchNorm, engine="cuda")
