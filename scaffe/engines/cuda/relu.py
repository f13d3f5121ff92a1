"""ReLU by one kernel per pass; in place, the layer before it computes it where there is such a kernel: see chain.py."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.engines.cuda.chain import DeferredTop, Unrectified, deferred, raw
from scaffe.engines.cuda.engine import engine_of
from scaffe.engines.cuda.forms import arrays, data, diff, kind, reading
from scaffe.engines.cuda.typed_blobs import TypedLayer
from scaffe.layers.dropout import Dropout
from scaffe.layers.layer import Blobs, Layer, register
from scaffe.layers.relu import ReLU


class CudaReLU(TypedLayer, ReLU):
    """ReLU, leaky with negative_slope."""

    capturable = True
    _fused = False  # whether the last forward pass was computed with that of the layers before

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        values = data(top[0])
        waiting = deferred(values, DeferredTop) if top[0] is bottom[0] and self.slope == 0 else None
        self._fused = waiting is not None
        if waiting:
            waiting.compute(raw(values), rectified=True)
            top[0].values.overwritten()
            return
        _, (x, y) = arrays([data(bottom[0])], [values])
        engine_of(self).over("relu", f"relu{kind(x)}", x.size, x, y, float(self.slope), each=16 // x.itemsize)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        if self._fused and data(top[0]).is_last == diff(top[0]).is_last:  # gradients are plain in tests
            reading(diff(top[0]))  # so that it lies where the layer before reads it
            bottom[0].diff_values.defer(self._unrectified(top))
            return
        _, (x, dy, dx) = arrays([data(bottom[0]), diff(top[0])], [diff(bottom[0])])
        given = x, dy, dx, float(self.slope)
        engine_of(self).over("relu", f"relu_back{kind(x)}", x.size, *given, each=16 // x.itemsize)

    def _unrectified(self, top: Blobs) -> Unrectified:
        """Return the gradient to be computed; the same one in each pass over the same blob."""
        if self._gradient is None or self._gradient.top.values is not top[0].values:
            self._gradient = Unrectified(self, data(top[0]))
        return self._gradient

    _gradient: Unrectified | None = None


def fusable_relu(layer: Layer) -> CudaReLU | None:
    """Return the ReLU that follows a layer and can be computed with it, else None.

    It must work in place without a slope. Its gradient follows the sign of its own top then, so that no other layer but
    Dropout may work in place behind it.
    """
    relu = layer.follower
    if not isinstance(relu, CudaReLU) or not relu.works_in_place or relu.slope != 0:
        return None
    return relu if not relu.is_overwritten or isinstance(relu.follower, Dropout) else None


register("ReLU", CudaReLU, engine="cuda")
