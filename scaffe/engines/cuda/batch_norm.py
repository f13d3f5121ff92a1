"""BatchNorm by kernels: two launches per pass, of which the second forward one also updates the running sums."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.engines.cuda.channels import Channels
from scaffe.engines.cuda.engine import engine_of
from scaffe.layers.batch_norm import BatchNorm
from scaffe.layers.layer import Blobs, register


class CudaBatchNorm(BatchNorm):
    """BatchNorm (N x C x ...); the reference form where a channel has too many elements for the kernels."""

    capturable = True

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        super().reshape(bottom, top)
        self.parts = Channels(*self.view)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        if not self.parts.fit:
            return super().forward(bottom, top)
        engine, x, sums = engine_of(self), bottom[0].array, [blob.array for blob in self.blobs]
        kept = self.normalised = self.buffer("normalised", self.view, x.dtype)  # layers behind may change the top
        self.deviation = self.buffer("deviation", (self.view[1], 1), x.dtype)
        if self.use_sums:
            mean = self.buffer("mean", (self.view[1],), x.dtype)
            engine.over("batch_norm", "known_statistics", mean.size, *sums, mean, self.deviation, float(self.eps))
            return self.parts.launch(engine, "normalise_by", x, mean, self.deviation, kept, top[0].array)
        chunks, count = self.parts.sums(self, x.dtype), self.parts.elements
        numbers = float(self.eps), float(self.fraction), count / max(1, count - 1)
        self.parts.launch(engine, "norm_chunks", x, *chunks)
        arrays = x, *chunks, self.deviation, kept, top[0].array, *sums
        self.parts.launch(engine, "normalise", *arrays, numbers=numbers)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if self.use_sums or not propagate_down[0] or not self.parts.fit:
            return super().backward(top, propagate_down, bottom)
        engine, chunks = engine_of(self), self.parts.sums(self, self.normalised.dtype)
        arrays = self.normalised, top[0].diff_array
        self.parts.launch(engine, "norm_back_chunks", *arrays, *chunks)
        self.parts.launch(engine, "normalise_back", *arrays, *chunks, self.deviation, bottom[0].diff_array)


register("BatchNorm", CudaBatchNorm, engine="cuda")
