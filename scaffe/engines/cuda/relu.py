"""ReLU by one kernel per pass."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.engines.cuda.engine import engine_of
from scaffe.engines.cuda.forms import arrays, data, diff, kind
from scaffe.engines.cuda.typed_blobs import TypedLayer
from scaffe.layers.layer import Blobs, register
from scaffe.layers.relu import ReLU


class CudaReLU(TypedLayer, ReLU):
    """ReLU, leaky with negative_slope."""

    capturable = True

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        _, (x, y) = arrays([data(bottom[0])], [data(top[0])])
        engine_of(self).over("relu", f"relu{kind(x)}", x.size, x, y, float(self.slope), each=16 // x.itemsize)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0]:
            _, (x, dy, dx) = arrays([data(bottom[0]), diff(top[0])], [diff(bottom[0])])
            given = x, dy, dx, float(self.slope)
            engine_of(self).over("relu", f"relu_back{kind(x)}", x.size, *given, each=16 // x.itemsize)


register("ReLU", CudaReLU, engine="cuda")
