"""BatchReindex: samples selected by index, in any order and number."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.labels import class_indices
from scaffe.layers.layer import Blobs, Layer, register


class BatchReindex(Layer):
    """y[i] = x[indices[i]]. Bottoms: x (N x ...), indices (M); top: y (M x ...).

    The gradient of x adds up where an index occurs several times. Raise LabelError for an index outside 0 to N - 1.
    """

    bottoms = (2, 2)
    bottom_names = "samples, indices"

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        x, indices = bottom
        if not x.shape or len(indices.shape) != 1:
            raise self.shape_error(f"needs samples on axis 0 and a list of indices, got {x.shape} and {indices.shape}")
        top[0].reshape(*indices.shape, *x.shape[1:])

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        self.chosen, _ = class_indices(self, bottom[1], bottom[0].num, None)
        self.xp.take(bottom[0].array, self.chosen, axis=0, out=top[0].array)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        self.refuse_gradient(propagate_down, 1, "indices")
        if propagate_down[0]:
            dx = bottom[0].diff_array
            dx[...] = 0
            self.xp.add.at(dx, self.chosen, top[0].diff_array)

    def allows_force_backward(self, bottom_index: int) -> bool:
        return bottom_index == 0

    def mixes_samples(self, bottom: Blobs) -> str:
        return "it picks samples from the whole batch"


register("BatchReindex", BatchReindex)
