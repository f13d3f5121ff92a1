"""DepthwiseConvolution, ConvolutionDepthwise: forks' names of a Convolution with a group for each channel."""

from __future__ import annotations

from scaffe.layers.base_convolution import BaseConvolution
from scaffe.layers.convolution import Convolution
from scaffe.layers.layer import Blobs, register

NAMES = ("DepthwiseConvolution", "ConvolutionDepthwise")


class DepthwiseConvolution(BaseConvolution):
    """A Convolution whose `group` is the number of channels, given or not; mixed into a form of Convolution.

    `num_output` must be the number of channels, as in the forks. Its weights are those of such a Convolution.
    """

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param, channels = self.param.convolution_param, bottom[0].shape[self._axis(bottom)]
        if param.num_output != channels or (param.HasField("group") and param.group != channels):
            given = f"num_output {param.num_output}" + (f" and group {param.group}" if param.HasField("group") else "")
            raise self.shape_error(f"{given} for {channels} channels; give num_output: {channels}, and no group")
        param.group = channels
        super().setup(bottom, top)


def register_depthwise(form: type[BaseConvolution], engine: str) -> None:
    """Register an engine's form of Convolution as that of the depthwise types, too."""
    mixed = type(f"Depthwise{form.__name__}", (DepthwiseConvolution, form), {"__module__": form.__module__})
    for name in NAMES:
        register(name, mixed, engine)


class PlainDepthwiseConvolution(DepthwiseConvolution, Convolution):
    """The reference form."""


for name in NAMES:
    register(name, PlainDepthwiseConvolution)
