"""Deconvolution by oneDNN's deconvolution. Caffe's weights have the bottom's channels first, oneDNN's the top's."""

from __future__ import annotations

from math import prod
from typing import Any

from scaffe.blob import Blob
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.convolution import ConvolutionPrimitives
from scaffe.engines.onednn.convolution_layouts import PassDescs
from scaffe.engines.onednn.descriptors import Desc, NoFastForm, PrimitiveDesc
from scaffe.engines.onednn.layer_primitives import OnednnLayer
from scaffe.engines.onednn.operands import Gradient
from scaffe.engines.onednn.primitives import Memory, Onednn, reorder
from scaffe.layers.deconvolution import Deconvolution
from scaffe.layers.layer import register


class DeconvolutionPrimitives(ConvolutionPrimitives):
    """Other primitives than a convolution's; reorders swap the two axes of channels of weights and their gradient."""

    def _describe(self, bottom: Blob, top: Blob) -> PassDescs:
        """Set the shape and the layout of the weights, and return the primitives in the library's own layouts.

        Raise NoFastForm where one of them is not fast.
        """
        self._set_weights()
        layer, engine, window = self.layer, self.engine, self.layer.window
        geometry = [lib.dims(v) for v in (window.stride, [d - 1 for d in window.dilation], window.pad, window.pad)]
        low, bottom_kind, src = engine.kind, engine.kind_of(bottom), bottom.shape
        x, w, dy = (engine.any(shape, low) for shape in (src, self.weights_shape, top.shape))
        dx, dw, y = engine.any(src, bottom_kind), engine.any(self.weights_shape), engine.any(top.shape, self.kind)
        b = engine.plain((layer.outputs,)) if layer.bias_term else None

        def describe(name: str, *arguments: Any) -> PrimitiveDesc:
            given = engine.handle, *arguments, engine.attributes
            shapes = f"{src} by {self.weights_shape}"
            found = engine.describe(f"deconvolution_{name}", *given, shapes=shapes)
            if "ref" in found.implementation:
                raise NoFastForm(f"deconvolution of {shapes} has only the implementation '{found.implementation}'")
            return found

        direct = lib.DECONVOLUTION_DIRECT
        forward = describe("forward", lib.FORWARD_TRAINING, direct, x, w, b, y, *geometry)
        data = describe("backward_data", direct, dx, w, dy, *geometry, forward)
        return PassDescs(forward, data, describe("backward_weights", direct, x, dw, b, dy, *geometry, forward))

    def _set_weights(self) -> None:
        """Set the weights' shape (group x) F / group x C / group x size..., and the layout of Caffe's array in it."""
        layer, group = self.layer, self.layer.group
        inputs, outputs, window = layer.inputs // group, layer.outputs // group, layer.window.kernel
        steps = [prod(window[i + 1 :]) for i in range(len(window))]
        size = prod(window)
        groups, group_step = ((group,), [inputs * outputs * size]) if group > 1 else ((), [])
        self.weights_shape = (*groups, outputs, inputs, *window)
        self.plain_weights = self.engine.strided(self.weights_shape, [*group_step, size, outputs * size, *steps])

    def _weight_gradient(self, desc: Desc) -> Gradient:
        assert self.plain_weights is not None
        return _WeightGradient(self.engine, desc, self.plain_weights)


class _WeightGradient(Gradient):
    """The weights' gradient, reordered to Caffe's layout as it is added."""

    def __init__(self, engine: Onednn, desc: Desc, plain: Desc):
        super().__init__(engine, desc)
        self.plain = plain
        self.target: Memory | None = None

    def add_to(self, blob: Blob) -> None:
        diff = blob.diff_array
        if self.target is None:
            self.target = Memory(self.memory.engine, self.plain, diff)
            self.adding = reorder(self.memory, self.target, add=True)
        self.target.point(diff)
        self.adding.run()


class OnednnDeconvolution(OnednnLayer, Deconvolution):
    """Deconvolution in one to three spatial axes."""

    primitives_type = DeconvolutionPrimitives


register("Deconvolution", OnednnDeconvolution, engine="onednn")
