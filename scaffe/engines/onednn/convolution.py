"""Convolution by oneDNN, each bottom and its top in the layouts that oneDNN chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scaffe.context import TRAIN
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.convolution_ways import Ways
from scaffe.engines.onednn.elementwise import rectifier_behind
from scaffe.engines.onednn.fusion import Ahead
from scaffe.engines.onednn.plan import Gradient, Inlet, Plan, Planned, give
from scaffe.engines.onednn.primitives import Memory, NoFastForm, Primitive, passing
from scaffe.layers.convolution import Convolution
from scaffe.layers.layer import Blobs, register


class ConvolutionPlan(Plan):
    """Weights are reordered in each forward pass, since whoever trains may change them in between.

    Their gradients are written in oneDNN's layout and added to the plain ones.
    """

    def __init__(self, layer: Convolution, bottom: Blobs, top: Blobs):
        super().__init__(layer, bottom, top)
        if not spatial(layer, bottom):
            raise NoFastForm(f"a bottom of shape {bottom[0].shape} with {len(layer.window.size)} spatial axes")
        engine, ways = self.engine, Ways(layer, bottom[0].shape, top[0].shape)
        self.kernel = ways.kernel
        self.on_forward, self.on_data, self.on_weights = ways.take(layer.context.choices.of(ways.work, ways.fixed()))
        self.weights = Inlet(engine, self.on_forward.desc(lib.QUERY_WEIGHTS, self.kernel))
        same = self.on_data.desc(lib.QUERY_WEIGHTS, self.kernel) == self.weights.desc
        desc = self.on_data.desc(lib.QUERY_WEIGHTS, self.kernel)
        self.back_weights = self.weights if same else Inlet(engine, desc, brief=True)
        self.bias = Inlet(engine, engine.plain((layer.outputs,))) if layer.bias_term else None
        self.weight_diff: Gradient | None = None
        self.bias_diff = Gradient(engine, engine.plain((layer.outputs,))) if layer.bias_term else None
        self.pairs = [Pair(self, x.shape, y.shape) for x, y in zip(bottom, top, strict=True)]

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        blobs = self.layer.blobs
        weights = self.weights.fetch(blobs[0].values)
        bias = self.bias.fetch(blobs[1].values) if self.bias else None
        for pair, x, y in zip(self.pairs, bottom, top, strict=True):
            pair.forward(x, y, weights, bias)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        learns = any(self.layer.param_propagate_down)
        for pair, x, y, down in zip(self.pairs, bottom, top, propagate_down, strict=True):
            if learns:
                pair.backward_weights(x, y)
            if down:
                pair.backward_data(x, y)
            pair.done()

    def weights_for_data(self) -> Memory:
        """Return the weights as the gradient of a bottom takes them."""
        values = self.layer.blobs[0].values
        return self.weights.recall(values) if self.back_weights is self.weights else self.back_weights.fetch(values)

    def add_gradients(self) -> None:
        """Add the gradients of a pair to the parameters'."""
        learns, blobs = self.layer.param_propagate_down, self.layer.blobs
        if learns[0] and self.weight_diff:
            self.weight_diff.add_to(blobs[0])
        if self.bias_diff and learns[1]:
            self.bias_diff.add_to(blobs[1])

    def gradients(self) -> tuple[Gradient, Gradient | None]:
        """Return where the gradients of weights and bias are written."""
        if self.weight_diff is None:
            self.weight_diff = Gradient(self.engine, self.on_weights.desc(lib.QUERY_DIFF_WEIGHTS, self.kernel))
        return self.weight_diff, self.bias_diff


class Pair:
    """A bottom and its top, computed in one with a ReLU that works in place behind."""

    def __init__(self, plan: ConvolutionPlan, src: tuple[int, ...], dst: tuple[int, ...]):
        self.plan, self.src, self.dst = plan, src, dst
        engine, described = plan.engine, plan.on_forward
        self.x = Inlet(engine, described.desc(lib.QUERY_SRC, src))
        self.y = Memory(engine, described.desc(lib.QUERY_DST, dst))
        relu = rectifier_behind(plan.layer)
        rectified = engine.rectified(described, relu.slope) if relu else None
        self.ahead = Ahead(None, self._show_unrectified) if rectified else None
        self.run_forward = Primitive(engine, rectified or described, {lib.ARG_DST: self.y})
        self.run_unrectified: Primitive | None = None
        self.run_weights: Primitive | None = None
        self.run_data: Primitive | None = None
        self.read: list[Inlet] = []  # by the backward pass

    def forward(self, bottom: Any, top: Any, weights: Memory, bias: Memory | None) -> None:
        run = self.run_forward
        run.bind(lib.ARG_SRC, self.x.fetch(bottom.values))
        run.bind(lib.ARG_WEIGHTS, weights)
        if bias is not None:
            run.bind(lib.ARG_BIAS, bias)
        run.run()
        if self.ahead:
            top.values.take_form(self.ahead.holding(self.y))
        else:
            give(top.values, self.y)

    def _show_unrectified(self, array: Any) -> None:
        """Write what the ReLU behind would have seen; it has not run, so that its values are nobody's."""
        if self.run_unrectified is None:
            self.run_unrectified = Primitive(self.plan.engine, self.plan.on_forward)
        for arg in self.run_forward.memories.keys() - {lib.ARG_SCRATCHPAD}:
            self.run_unrectified.bind(arg, self.run_forward.memories[arg])
        self.run_unrectified.run()
        if array is not self.y.array:
            self.y.store(array)

    def backward_weights(self, bottom: Any, top: Any) -> None:
        if self.run_weights is None:
            self._prepare_weights()
        assert self.run_weights is not None
        self.run_weights.bind(lib.ARG_SRC, self.x_for_weights.recall(bottom.values))
        self.run_weights.bind(lib.ARG_DIFF_DST, self.dy_for_weights.fetch(top.diff_values))
        self.plan.gradients()[0].memory.taken()
        self.run_weights.run()
        self.plan.add_gradients()

    def _prepare_weights(self) -> None:
        plan, described = self.plan, self.plan.on_weights
        desc = described.desc(lib.QUERY_SRC, self.src)
        self.x_for_weights = self.x if desc == self.x.desc else Inlet(plan.engine, desc, brief=True)
        self.dy_for_weights = Inlet(plan.engine, described.desc(lib.QUERY_DIFF_DST, self.dst), brief=True)
        self.read += [self.x_for_weights, self.dy_for_weights]
        weights, bias = plan.gradients()
        memories = {lib.ARG_DIFF_WEIGHTS: weights.memory}
        if bias is not None:
            memories[lib.ARG_DIFF_BIAS] = bias.memory
        self.run_weights = Primitive(plan.engine, described, memories)

    def backward_data(self, bottom: Any, top: Any) -> None:
        if self.run_data is None:
            self._prepare_data()
        assert self.run_data is not None
        self.run_data.bind(lib.ARG_WEIGHTS, self.plan.weights_for_data())
        self.run_data.bind(lib.ARG_DIFF_DST, self.dy_for_data.recall(top.diff_values))
        self.dx.taken()
        self.run_data.run()
        give(bottom.diff_values, self.dx)

    def done(self) -> None:
        """Let copies that the backward pass needed go."""
        for inlet in self.read:
            inlet.done()

    def _prepare_data(self) -> None:
        engine, described = self.plan.engine, self.plan.on_data
        desc = described.desc(lib.QUERY_DIFF_DST, self.dst)
        shared = self.run_weights is not None and desc == self.dy_for_weights.desc
        self.dy_for_data = self.dy_for_weights if shared else Inlet(engine, desc, brief=True)
        self.read += [self.dy_for_data, self.plan.back_weights]
        self.dx = passing(engine, described.desc(lib.QUERY_DIFF_SRC, self.src))
        self.run_data = Primitive(engine, described, {lib.ARG_DIFF_SRC: self.dx})


def spatial(layer: Convolution, bottom: Blobs) -> bool:
    """Say whether all axes of a bottom from the third on are spatial, as oneDNN has it."""
    axes = len(layer.window.size)
    return 1 <= axes <= 3 and len(bottom[0].shape) == axes + 2


class OnednnConvolution(Planned, Convolution):
    """Convolution in one to three spatial axes."""

    plan_type = ConvolutionPlan

    def works(self, bottom: Blobs, top: Blobs, down: bool) -> dict[str, Callable[[], dict[str, float]]]:
        if not spatial(self, bottom):
            return {}
        ways = Ways(self, bottom[0].shape, top[0].shape)
        learns = self.context.phase == TRAIN and any(self.param_propagate_down)
        return {ways.work: lambda: ways.time(down, learns)}


register("Convolution", OnednnConvolution, engine="onednn")
