"""Scale by kernels: one launch forward; backward one for values and partial sums, and one that adds the sums up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.engines.cuda.channels import Channels
from scaffe.engines.cuda.engine import engine_of
from scaffe.layers.layer import Blobs, register
from scaffe.layers.scale import Scale

NONE = np.uint64(0)  # a null pointer, for an array that a kernel does not get


class CudaScale(Scale):
    """Scale by a learned factor per channel; the reference form for a second bottom."""

    capturable = True

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        super().reshape(bottom, top)
        self.parts = Channels(*self.view)
        self.has_kernel = len(bottom) == 1 and self.parts.fit

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        if not self.has_kernel:
            return super().forward(bottom, top)
        x, in_place = bottom[0].array, top[0] is bottom[0]
        self.input = self.buffer("kept input", self.view, x.dtype) if in_place else x.reshape(self.view)
        blobs = self.blobs[0].array, self.bias.array if self.bias else NONE
        kept = self.input if in_place else NONE
        self.parts.launch(engine_of(self), "scale", x, *blobs, kept, top[0].array)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not self.has_kernel or not propagate_down[0]:  # Caffe then leaves dy x in the bottom's diff
            return super().backward(top, propagate_down, bottom)
        engine, dy, chunks = engine_of(self), top[0].diff_array, self.parts.sums(self, self.input.dtype)
        arrays = self.input, dy, self.blobs[0].array, bottom[0].diff_array
        self.parts.launch(engine, "scale_back", *arrays, *chunks)
        factor = self.blobs[0].diff_array if self.param_propagate_down[0] else NONE
        bias = self.bias.diff_array if self.bias and self.param_propagate_down[-1] else NONE
        channels = self.parts.channels
        engine.launch("batch_norm", "scale_gradients", (channels,), *chunks, self.parts.chunks, bias, factor)


register("Scale", CudaScale, engine="cuda")
