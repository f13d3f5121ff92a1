"""Convolution by oneDNN's convolution, each bottom and its top in the layouts that oneDNN chooses."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from scaffe.blob import Blob, Shape
from scaffe.context import TRAIN
from scaffe.devices.choices import Work
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.column_product import ColumnProduct
from scaffe.engines.onednn.convolution_layouts import ConvolutionLayouts, PassDescs
from scaffe.engines.onednn.descriptors import Desc, NoFastForm
from scaffe.engines.onednn.elementwise import fusable_relu
from scaffe.engines.onednn.fusion import DeferredValues
from scaffe.engines.onednn.layer_primitives import LayerPrimitives, OnednnLayer
from scaffe.engines.onednn.operands import Gradient, Operand, assign
from scaffe.engines.onednn.picked_pixels import PickedOperand, SpreadPixels
from scaffe.engines.onednn.pooled_memory import pooled
from scaffe.engines.onednn.primitives import Memory, Primitive, engine_of
from scaffe.engines.onednn.row_product import PixelProduct
from scaffe.engines.onednn.rows_sum import RowsSum
from scaffe.engines.onednn.strided_product import StridedProduct
from scaffe.engines.onednn.weights import WeightForm
from scaffe.layers.base_convolution import BaseConvolution
from scaffe.layers.convolution import Convolution
from scaffe.layers.depthwise_convolution import register_depthwise
from scaffe.layers.layer import Blobs, register

Product = PixelProduct | StridedProduct | ColumnProduct


class ConvolutionPrimitives(LayerPrimitives):
    """The primitives of a convolution, for each pair of a bottom (N x C x size...) and a top (N x F x out...).

    Weights are reordered in each forward pass, since an update may have changed them. Their gradients are written in
    oneDNN's layout and added to the plain ones.
    """

    plain_weights: Desc | None = None  # the layout of the layer's array of weights; None for C order

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        super().__init__(layer, bottom, top)
        if not spatial(layer, bottom):
            raise NoFastForm(f"a bottom of shape {bottom[0].shape} with {len(layer.window.size)} spatial axes")
        engine, self.window = self.engine, layer.window
        self.passes = self._describe(bottom[0], top[0])
        layouts = [desc.desc(lib.QUERY_WEIGHTS, self.weights_shape) for desc in (self.passes.forward, self.passes.data)]
        self.weights = WeightForm(layer, layouts[0], self.plain_weights)
        self.back_weights = self.weights
        if layouts[0] != layouts[1]:
            self.back_weights = WeightForm(layer, layouts[1], self.plain_weights, brief=True)
        self.bias = Operand(engine, engine.plain((layer.outputs,))) if layer.bias_term else None
        self.weight_diff: Gradient | None = None
        self.bias_diff = Gradient(engine, engine.plain((layer.outputs,))) if layer.bias_term else None
        self.pairs = [Pair(self, x.shape, y.shape) for x, y in zip(bottom, top, strict=True)]

    def _describe(self, bottom: Blob, top: Blob) -> PassDescs:
        """Set `weights_shape`, oneDNN's shape, and `window`, and return the primitives of the three passes."""
        layouts = ConvolutionLayouts(self.layer, bottom, top)
        self.weights_shape, self.window = layouts.weights_shape, layouts.window
        return layouts.take(self.layer.context.choices.of(layouts.work, layouts.fixed()))

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
            pair.release()

    def product(self, src: Desc, dst: Desc) -> Product | None:
        """Return a faster form of the weights' gradient, where there is one for a bottom and top in these layouts."""
        layer, engine = self.layer, self.engine
        if not (self._takes_products(src, dst) and layer.param_propagate_down[0]):
            return None
        pixels = set(self.window.kernel) == {1} and not any(self.window.pad)
        form = ColumnProduct if engine.kind == lib.F32 else PixelProduct if pixels else StridedProduct
        with suppress(NoFastForm):
            bias = self.bias_diff.memory if self.bias_diff else None
            return form(engine, src.shape, dst.shape, self.window, bias)
        return None

    def rows_sum(self, src: Desc, dst: Desc) -> RowsSum | None:
        """Return a faster form of the bottom's gradient, likewise."""
        with suppress(NoFastForm):
            if self.engine.kind == lib.F32 and self._takes_products(src, dst):
                return RowsSum(self.engine, src.shape, dst.shape, self.layer)
        return None

    def _takes_products(self, src: Desc, dst: Desc) -> bool:
        """Return whether a convolution's bottom and top have their channels last, all together in one group."""
        last = all(desc == self.engine.channels_last(desc.shape, self.engine.kind) for desc in (src, dst))
        return isinstance(self.layer, Convolution) and self.layer.group == 1 and last

    def weights_for_data(self) -> Memory:
        """Return the weights in the layout that the backward pass by data reads."""
        values = self.layer.blobs[0].values
        return self.weights.recall(values) if self.back_weights is self.weights else self.back_weights.fetch(values)

    def add_gradients(self) -> None:
        """Add the gradients that a pair's backward pass by weights has written to the parameters' diffs."""
        learns, blobs = self.layer.param_propagate_down, self.layer.blobs
        if learns[0] and self.weight_diff:
            self.weight_diff.add_to(blobs[0])
        if self.bias_diff and learns[1]:
            self.bias_diff.add_to(blobs[1])

    def gradients(self) -> tuple[Gradient, Gradient | None]:
        """Return the gradients of weights and bias, made when first needed; None for no bias."""
        if self.weight_diff is None:
            self.weight_diff = self._weight_gradient(
                self.passes.weights.desc(lib.QUERY_DIFF_WEIGHTS, self.weights_shape)
            )
        return self.weight_diff, self.bias_diff

    def _weight_gradient(self, desc: Desc) -> Gradient:
        return Gradient(self.engine, desc)


class Pair:
    """A bottom of shape `whole` and its top of shape `dst`, fused with a ReLU that follows in place.

    `src` is the shape of the bottom, or of what is picked from it.
    """

    def __init__(self, owner: ConvolutionPrimitives, whole: Shape, dst: Shape):
        self.owner, self.whole, self.dst = owner, whole, dst
        engine, described = owner.engine, owner.passes.forward
        self.picks = owner.window != owner.layer.window
        self.src = (*whole[:2], *owner.window.size) if self.picks else whole
        self.x = self._bottom(described.desc(lib.QUERY_SRC, self.src))
        self.y = Memory(engine, described.desc(lib.QUERY_DST, dst))
        relu = fusable_relu(owner.layer)
        rectified = engine.rectified(described, relu.slope) if relu else None
        self.run_forward = Primitive(engine, rectified or described, {lib.ARG_DST: self.y})
        between = DeferredValues(None, self._write_unrectified, again=self.run_forward.run)
        self.deferred = between if rectified else None
        self.run_unrectified: Primitive | None = None
        self.run_weights: Primitive | None = None
        self.product: Product | None = None  # in the place of `run_weights`
        self.run_data: Primitive | None = None
        self.rows_sum: RowsSum | None = None  # in the place of `run_data`
        self.spread: SpreadPixels | None = None  # behind `run_data`
        self.read: list[Operand | PickedOperand] = []  # by the backward pass

    def _bottom(self, desc: Desc, brief: bool = False) -> Operand | PickedOperand:
        engine = self.owner.engine
        if self.picks:
            return PickedOperand(engine, desc, self.whole, self.owner.layer.window.stride, brief)
        return Operand(engine, desc, brief=brief)

    def forward(self, bottom: Blob, top: Blob, weights: Memory, bias: Memory | None) -> None:
        """Compute the top's values, rectified where a ReLU is fused."""
        given = {lib.ARG_SRC: self.x.fetch(bottom.values), lib.ARG_WEIGHTS: weights}
        if bias is not None:
            given[lib.ARG_BIAS] = bias
        self.run_forward.run(given)
        if self.deferred:
            top.values.take_form(self.deferred.with_result(self.y))
        else:
            assign(top.values, self.y)

    def _write_unrectified(self, array: Any) -> None:
        """Compute the convolution's own values into the ReLU's memory, which no blob holds before the ReLU runs."""
        if self.run_unrectified is None:
            self.run_unrectified = Primitive(self.owner.engine, self.owner.passes.forward)
        for arg in self.run_forward.memories.keys() - {lib.ARG_SCRATCHPAD}:
            self.run_unrectified.bind(arg, self.run_forward.memories[arg])
        self.run_unrectified.run()
        if array is not self.y.array:
            self.y.store(array)

    def backward_weights(self, bottom: Blob, top: Blob) -> None:
        """Compute the gradients of weights and bias and add them to the parameters' diffs."""
        if self.run_weights is None and self.product is None:
            self._prepare_weights()
        x, dy = self.x_for_weights.recall(bottom.values), self.dy_for_weights.fetch(top.diff_values)
        if self.product:
            self.product.add(x, dy, self.owner.layer.blobs[0])
        elif self.run_weights:
            self.owner.gradients()[0].memory.acquire()
            if self.strides_past:
                self.run_weights.clear_scratchpad()
            self.run_weights.run({lib.ARG_SRC: x, lib.ARG_DIFF_DST: dy})
        self.owner.add_gradients()

    def _prepare_weights(self) -> None:
        owner, described = self.owner, self.owner.passes.weights
        desc, back = described.desc(lib.QUERY_SRC, self.src), described.desc(lib.QUERY_DIFF_DST, self.dst)
        self.x_for_weights = self.x if desc == self.x.desc else self._bottom(desc, brief=True)
        self.dy_for_weights = Operand(owner.engine, back, brief=True)
        self.read += [self.x_for_weights, self.dy_for_weights]
        self.product = owner.product(desc, back)
        if self.product:
            return
        weights, bias = owner.gradients()
        memories = {lib.ARG_DIFF_WEIGHTS: weights.memory}
        if bias is not None:
            memories[lib.ARG_DIFF_BIAS] = bias.memory
        self.run_weights = Primitive(owner.engine, described, memories)

    @property
    def strides_past(self) -> bool:
        """Whether bottom or top are narrower than the stride.

        oneDNN's bfloat16 kernel for the weights' gradient then reads scratch memory that it does not write, which must
        be 0.
        """
        narrowest = min(self.src[-1], self.dst[-1])
        return self.owner.engine.kind == lib.BF16 and narrowest < self.owner.layer.window.stride[-1]

    def backward_data(self, bottom: Blob, top: Blob) -> None:
        """Compute the gradient of the bottom."""
        if self.run_data is None and self.rows_sum is None:
            self._prepare_data()
        dy = self.dy_for_data.recall(top.diff_values)
        if self.rows_sum:
            assign(bottom.diff_values, self.rows_sum.of(dy, self.owner.layer.blobs[0].values))
        elif self.run_data:
            self.dx.acquire()
            self.run_data.run({lib.ARG_WEIGHTS: self.owner.weights_for_data(), lib.ARG_DIFF_DST: dy})
            assign(bottom.diff_values, self.spread.of(self.dx) if self.spread else self.dx)

    def release(self) -> None:
        """Return the buffers of the backward pass's copies to the engine's pool."""
        for operand in self.read:
            operand.release()

    def _prepare_data(self) -> None:
        engine, described = self.owner.engine, self.owner.passes.data
        desc, src = described.desc(lib.QUERY_DIFF_DST, self.dst), described.desc(lib.QUERY_DIFF_SRC, self.src)
        shared = len(self.read) > 1 and desc == self.dy_for_weights.desc
        self.dy_for_data = self.dy_for_weights if shared else Operand(engine, desc, brief=True)
        self.rows_sum = self.owner.rows_sum(src, desc)
        self.read += [self.dy_for_data, self.rows_sum.weights if self.rows_sum else self.owner.back_weights]
        if self.rows_sum:
            return
        self.dx = pooled(engine, src)
        if self.picks:
            self.spread = SpreadPixels(engine, src, self.whole, self.owner.layer.window.stride)
        self.run_data = Primitive(engine, described, {lib.ARG_DIFF_SRC: self.dx})


def spatial(layer: BaseConvolution, bottom: Blobs) -> bool:
    """Return whether a bottom's axes from the third on are its spatial ones, one to three, as oneDNN expects."""
    return _is_spatial(layer, bottom[0].shape)


def _is_spatial(layer: BaseConvolution, shape: Shape) -> bool:
    axes = len(layer.window.size)
    return 1 <= axes <= 3 and len(shape) == axes + 2


class OnednnConvolution(OnednnLayer, Convolution):
    """Convolution in one to three spatial axes."""

    primitives_type = ConvolutionPrimitives

    @property
    def rounded_blobs(self) -> Sequence[int]:  # type: ignore[override]
        """The weights, unless the layer computes in numpy."""
        fast = engine_of(self).kind != lib.F32 and self._shapes is not None and _is_spatial(self, self._shapes[0])
        return (0,) if fast else ()

    def works(self, bottom: Blobs, top: Blobs, down: bool) -> dict[str, Work]:
        if not spatial(self, bottom):
            return {}
        layouts = ConvolutionLayouts(self, bottom[0], top[0])
        learns = self.context.phase == TRAIN and any(self.param_propagate_down)
        return {layouts.work: Work(lambda: layouts.time(down, learns))}


register("Convolution", OnednnConvolution, engine="onednn")
register_depthwise(OnednnConvolution, "onednn")
