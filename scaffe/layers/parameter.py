"""Parameter: a parameter blob as a top."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.layer import Blobs, Layer, register
from scaffe.proto import FillerParameter


class Parameter(Layer):
    """y = the parameter, a learned blob with the `shape` of the prototxt, zeros at first."""

    bottoms = (0, 0)

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        self.add_blob(tuple(self.param.parameter_param.shape.dim), FillerParameter())

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        top[0].reshape(*self.blobs[0].shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        top[0].array[...] = self.blobs[0].array  # a copy, since following layers may work in place

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if self.param_propagate_down[0]:
            diff = self.blobs[0].diff_array
            diff += top[0].diff_array


register("Parameter", Parameter)
