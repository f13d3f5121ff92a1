"""BatchNorm by kernels: statistics and running sums, values, and gradients in one launch each."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.batch_norm import BatchNorm
from scaffe.layers.layer import Blobs, register


class CudaBatchNorm(BatchNorm):
    """BatchNorm."""

    capturable = True

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        engine, x, (_, channels, inner) = self.context.engine, bottom[0].array, self.view
        mean = self.buffer("mean", (channels,), x.dtype)
        self.deviation = self.buffer("deviation", (channels, 1), x.dtype)
        sums, numbers = [blob.array for blob in self.blobs], (float(self.eps), float(self.fraction))
        if self.use_sums:
            engine.over("batch_norm", "known_statistics", channels, *sums, mean, self.deviation, numbers[0])
        else:
            arrays = x, mean, self.deviation, *sums
            engine.launch("batch_norm", "norm_statistics", (channels,), *arrays, *self.view, *numbers)
        self.normalised = self.buffer("normalised", self.view, x.dtype)  # layers above may change the top in place
        arrays = x, mean, self.deviation, self.normalised, top[0].array
        engine.over("batch_norm", "normalise", x.size, *arrays, channels, inner)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if self.use_sums or not propagate_down[0]:
            return super().backward(top, propagate_down, bottom)
        arrays = self.normalised, top[0].diff_array, self.deviation, bottom[0].diff_array
        self.context.engine.launch("batch_norm", "normalise_back", (self.view[1],), *arrays, *self.view)


register("BatchNorm", CudaBatchNorm, engine="cuda")
