"""Deconvolution by oneDNN. Caffe's weights have the bottom's channels first, oneDNN's the top's."""

from __future__ import annotations

from math import prod
from typing import Any

from scaffe.blob import Blob
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.convolution import ConvolutionPlan, Pair
from scaffe.engines.onednn.plan import Gradient, Inlet, Plan, Planned
from scaffe.engines.onednn.primitives import Desc, Engine, Memory, NoFastForm, PrimitiveDesc, reorder
from scaffe.layers.deconvolution import Deconvolution
from scaffe.layers.layer import Blobs, register


class DeconvolutionPlan(ConvolutionPlan):
    """A convolution's plan with other primitives; weights and their gradient change places of channels on the way."""

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        Plan.__init__(self, layer, bottom, top)
        axes, engine = len(layer.window.size), self.engine
        if not 1 <= axes <= 3 or len(bottom[0].shape) != axes + 2:
            raise NoFastForm(f"a bottom of shape {bottom[0].shape} with {axes} spatial axes")
        self._measure()
        self.on_forward, self.on_data, self.on_weights = self._describe_passes(bottom[0].shape, top[0].shape)
        descs = [described.desc(lib.QUERY_WEIGHTS, self.kernel) for described in (self.on_forward, self.on_data)]
        self.weights = Inlet(engine, descs[0], self.order)
        self.back_weights = self.weights if descs[0] == descs[1] else Inlet(engine, descs[1], self.order)
        self.bias = Inlet(engine, engine.plain((layer.outputs,))) if layer.bias_term else None
        self.weight_diff: Gradient | None = None
        self.bias_diff = Gradient(engine, engine.plain((layer.outputs,))) if layer.bias_term else None
        self.pairs = [Pair(self, x.shape, y.shape) for x, y in zip(bottom, top, strict=True)]

    def _measure(self) -> None:
        """Set the weights' shape as oneDNN sees it, and how Caffe's array lies in that."""
        layer, group = self.layer, self.layer.group
        inputs, outputs, window = layer.inputs // group, layer.outputs // group, layer.window.kernel
        steps = [prod(window[i + 1 :]) for i in range(len(window))]
        size = prod(window)
        groups, group_step = ((group,), [inputs * outputs * size]) if group > 1 else ((), [])
        self.kernel = (*groups, outputs, inputs, *window)
        self.order = self.engine.strided(self.kernel, [*group_step, size, outputs * size, *steps])

    def _describe_passes(self, src: tuple[int, ...], dst: tuple[int, ...]) -> list[PrimitiveDesc]:
        """Return the three primitives, in the library's own layouts. Raise NoFastForm where one is not fast."""
        layer, engine, window = self.layer, self.engine, self.layer.window
        geometry = [lib.dims(v) for v in (window.stride, [d - 1 for d in window.dilation], window.pad, window.pad)]
        x, w, y = (engine.any(shape) for shape in (src, self.kernel, dst))
        b = engine.plain((layer.outputs,)) if layer.bias_term else None

        def describe(way: str, *arguments: Any) -> PrimitiveDesc:
            given = engine.handle, *arguments, engine.attributes
            found = engine.describe(f"deconvolution_{way}", *given, shapes=f"{src} by {self.kernel}")
            if "ref" in found.implementation:
                raise NoFastForm(f"deconvolution of {src} by {self.kernel} has '{found.implementation}' alone")
            return found

        direct = lib.DECONVOLUTION_DIRECT
        forward = describe("forward", lib.FORWARD_TRAINING, direct, x, w, b, y, *geometry)
        data = describe("backward_data", direct, x, w, y, *geometry, forward)
        return [forward, data, describe("backward_weights", direct, x, w, b, y, *geometry, forward)]

    def gradients(self) -> tuple[Gradient, Gradient | None]:
        if self.weight_diff is None:
            desc = self.on_weights.desc(lib.QUERY_DIFF_WEIGHTS, self.kernel)
            self.weight_diff = _WeightGradient(self.engine, desc, self.order)
        return self.weight_diff, self.bias_diff


class _WeightGradient(Gradient):
    """The weights' gradient, put in Caffe's order where it is added."""

    def __init__(self, engine: Engine, desc: Desc, order: Desc):
        super().__init__(engine, desc)
        self.order = order
        self.target: Memory | None = None

    def add_to(self, blob: Blob) -> None:
        diff = blob.diff_array
        if self.target is None:
            self.target = Memory(self.memory.engine, self.order, diff)
            self.adding = reorder(self.memory, self.target, add=True)
        self.target.point(diff)
        self.adding.run()


class OnednnDeconvolution(Planned, Deconvolution):
    """Deconvolution in one to three spatial axes."""

    plan_type = DeconvolutionPlan


register("Deconvolution", OnednnDeconvolution, engine="onednn")
