"""ReLU by one kernel per pass."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.engines.cuda.engine import engine_of
from scaffe.layers.layer import Blobs, register
from scaffe.layers.relu import ReLU


class CudaReLU(ReLU):
    """ReLU, leaky with negative_slope."""

    capturable = True

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        x = bottom[0].array
        engine_of(self).over("relu", "relu", x.size, x, top[0].array, float(self.slope), each=4)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0]:
            x, dy, dx = bottom[0].array, top[0].diff_array, bottom[0].diff_array
            engine_of(self).over("relu", "relu_back", x.size, x, dy, dx, float(self.slope), each=4)


register("ReLU", CudaReLU, engine="cuda")
