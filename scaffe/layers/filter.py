"""Filter: the samples that a selector blob selects."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from scaffe.layers.layer import ANY, Blobs, Layer, register


class Filter(Layer):
    """y_i = the samples of x_i whose selector value is not 0.

    Bottoms: x_0, x_1, ... (N x ...), and last the selector (N). Tops: y_0, y_1, ... (M x ...), M the number of selected
    samples; M = N when the net is built. The gradient of other samples is 0.
    """

    bottoms = (2, ANY[1])
    bottom_names = "what to filter, the selector last"
    tops = (1, ANY[1])
    reshapes_always = True

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        if len(top) != len(bottom) - 1:
            raise self.error(f"takes a bottom for each top, and the selector, got {len(bottom)} and {len(top)}")
        self.is_built = False

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        selector = bottom[-1]
        if not selector.shape or prod(selector.shape[1:]) != 1:
            raise self.shape_error(f"the selector has shape {selector.shape}; give one value per sample")
        for blob in bottom[:-1]:
            if blob.shape[:1] != selector.shape[:1]:
                raise self.shape_error(f"bottoms have shapes {blob.shape} and {selector.shape}; axis 0 must agree")
        passing = selector.array.reshape(-1) != 0
        if not self.is_built:
            passing[:] = self.is_built = True
        (self.chosen,) = self.xp.nonzero(passing)
        for source, target in zip(bottom, top):  # noqa: B905  the selector has no top
            target.reshape(len(self.chosen), *source.shape[1:])

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        for source, target in zip(bottom, top):  # noqa: B905
            self.xp.take(source.array, self.chosen, axis=0, out=target.array)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        self.refuse_gradient(propagate_down, len(bottom) - 1, "selector")
        for source, down, target in zip(bottom, propagate_down, top):  # noqa: B905
            if down:
                source.diff_array[...] = 0
                source.diff_array[self.chosen] = target.diff_array

    def allows_force_backward(self, bottom_index: int) -> bool:
        return bottom_index < len(self.param.bottom) - 1

    def mixes_samples(self, bottom: Blobs) -> str:
        return "it selects samples, so a rank's part of the tops would differ from its part of the batch"


register("Filter", Filter)
