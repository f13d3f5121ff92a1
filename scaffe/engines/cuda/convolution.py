"""Convolution and Deconvolution by cuDNN; without it, over two spatial axes, by a columns kernel and cuBLAS."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from scaffe.blob import Blob, Shape
from scaffe.context import TRAIN
from scaffe.devices.choices import Work
from scaffe.engines.cuda.chain import DeferredTop, Unrectified, deferred, raw
from scaffe.engines.cuda.cudnn import (
    CORRELATE,
    IMAGES,
    MAPS,
    NO_EPILOGUE,
    SPREAD,
    WEIGH,
    WEIGHTS,
    Epilogue,
    Pass,
    Problem,
)
from scaffe.engines.cuda.engine import engine_of
from scaffe.engines.cuda.filters import Filters, Operands, Side, problem_of
from scaffe.engines.cuda.folding import Folding
from scaffe.engines.cuda.forms import BlobValues, data, diff, last_shape, reading, writing
from scaffe.engines.cuda.layouts import add_channel_sums, add_row_sums, channels_last
from scaffe.engines.cuda.relu import fusable_relu
from scaffe.engines.cuda.typed_blobs import TypedLayer
from scaffe.layers.base_convolution import BaseConvolution
from scaffe.layers.convolution import Convolution
from scaffe.layers.deconvolution import Deconvolution
from scaffe.layers.depthwise_convolution import register_depthwise
from scaffe.layers.im2col import SlidingWindow
from scaffe.layers.layer import Blobs, register

COLUMN_BYTES = 1 << 28  # of the columns of one product: small products do not fill a GPU


class CudaColumns:
    """Unfold n images into columns (C kernel... x n out...) and fold columns' gradients back.

    Positions in an image vary fastest, so that adjacent threads write adjacent elements.
    """

    def __init__(self, layer: BaseConvolution, images: int, channels: int, window: SlidingWindow):
        self.engine, self.images, self.channels = engine_of(layer), images, channels
        axes = zip(window.size, window.out, window.kernel, window.stride, window.pad, window.dilation, strict=True)
        self.sides = [number for axis in axes for number in axis]
        self.layer, self.shape = layer, (channels * prod(window.kernel), images * prod(window.out))

    @property
    def matrix(self) -> Any:
        """The columns, in the engine's scratch memory, which all layers share."""
        return self.layer.scratch("columns", self.shape, self.layer.blobs[0].array.dtype)

    def unfold(self, images: Any) -> Any:
        """Return the columns of `images` (n x C x H x W) as a matrix; the next call overwrites it."""
        matrix = self.matrix
        self._launch("unfold", matrix.size, images, matrix)
        return matrix

    def fold(self, images: Any) -> None:
        """Write into each pixel of `images` (n x C x H x W) the sum of its entries in `matrix`."""
        self._launch("fold", images.size, self.matrix, images)

    def _launch(self, kernel: str, count: int, source: Any, target: Any) -> None:
        self.engine.over("columns", kernel, count, source, target, self.images, self.channels, *self.sides)


class ColumnConvolution(BaseConvolution):
    """Compute over two spatial axes by columns and cuBLAS; over others by the reference form."""

    capturable = True

    column_bytes = COLUMN_BYTES

    def _columns_for(self, images: Any) -> Any:
        if len(self.window.size) != 2:
            return super()._columns_for(images)
        columns = self._columns.get(len(images))
        if columns is None:
            columns = self._columns[len(images)] = CudaColumns(self, len(images), self.channels, self.window)
        return columns

    def _gather(self, maps: Any) -> Any:
        if len(self.window.size) != 2:
            return super()._gather(maps)
        product = self._product(len(maps), maps.dtype)
        product.reshape(self.filters, len(maps), -1)[...] = maps.transpose(1, 0, 2)
        return product

    def _scatter(self, product: Any, maps: Any) -> None:
        if len(self.window.size) != 2:
            return super()._scatter(product, maps)
        maps[...] = product.reshape(self.filters, len(maps), -1).transpose(1, 0, 2)


class FilterArrays:
    """How a layer's blobs reach the kernels of `filters`: as they lie, the weights and their gradient converted."""

    def __init__(self, layer: CudnnConvolution, filters: Filters):
        self.layer, self.filters = layer, filters

    def bottom(self, x: Blob, again: bool = False) -> Side:
        """Return a bottom's values; with `again`, in the backward pass of those that the forward pass has read."""
        return _read(data(x))

    def weights(self) -> Side:
        """Return the weights as kernels read them, converted in each forward pass: an update may have changed them."""
        weights = self.layer.blobs[0].array.reshape(self.filters.problem.weights)
        if self.filters.dtype is None:
            return Side(weights)
        converted = self.layer.buffer("converted weights", last_shape(weights.shape), self.filters.dtype)
        channels_last(engine_of(self.layer), weights, converted)
        return Side(converted, is_last=True)

    def add_gradient(self, operands: Operands) -> None:
        """Add the gradient of the weights."""
        weights = self.layer.blobs[0]
        gradient, zeros = weights.diff_values.to_add(weights.shape, self.layer.xp)
        self.filters.run(WEIGH, operands, Side(gradient), add=not zeros)


class FoldedArrays(FilterArrays):
    """The same for a first layer whose images are folded, once for both passes."""

    def __init__(self, layer: CudnnConvolution, filters: Filters, folding: Folding):
        super().__init__(layer, filters)
        self.folding = folding

    def bottom(self, x: Blob, again: bool = False) -> Side:
        folded = self._buffer("folded images", self.filters.problem.images)
        if not again:
            self.folding.fold_images(engine_of(self.layer), self.layer._images(data(x).plain), folded)
        return Side(folded, is_last=True)

    def weights(self) -> Side:
        folded = self._buffer("folded weights", self.filters.problem.weights)
        self.folding.fold_weights(engine_of(self.layer), self.layer.blobs[0].array, folded)
        return Side(folded, is_last=True)

    def add_gradient(self, operands: Operands) -> None:
        weights, folded = self.layer.blobs[0], self._buffer("folded gradient", self.filters.problem.weights)
        gradient, zeros = weights.diff_values.to_add(weights.shape, self.layer.xp)
        self.filters.run(WEIGH, operands, Side(folded, is_last=True))
        self.folding.unfold_gradient(engine_of(self.layer), folded, gradient, add=not zeros)

    def _buffer(self, name: str, shape: Shape) -> Any:
        return self.layer.buffer(name, last_shape(shape), self.filters.dtype)


class Convolved(DeferredTop):
    """The values of a convolution's top, which the ReLU behind it has computed with its own."""

    def __init__(self, layer: CudnnConvolution, bottom: Blob, top: Blob):
        self.layer, self.bottom, self.top = layer, bottom, top

    def compute(self, target: Any, rectified: bool = False) -> None:
        self.layer.convolve(self.bottom, Side(target, data(self.top).is_last), rectified)


class CudnnConvolution(TypedLayer, ColumnConvolution):
    """Compute by cuDNN where it is installed and supports the convolution, else by columns.

    In bfloat16 and TF32 the weights are converted once per forward pass, for the backward pass too, and the library
    writes their gradient in that type, which is then added to the float32 one. A ReLU in place behind it is computed
    with it, and so are, backward, the sums of the bias's gradient with that ReLU.

    `straight` is cuDNN's pass from bottom to top, `back` the one for the bottom's gradient. `source` and `target` are
    the roles of bottom and top in them.
    """

    straight: Pass
    back: Pass
    source: str
    target: str
    one_form = False
    _plain: FilterArrays | None = None  # for all passes
    _way: FilterArrays | None = None  # for the passes that read the bottom: these may be folded
    _convolved: Convolved | None = None

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        super().reshape(bottom, top)
        problem = problem_of(self)
        if self._plain is None or self._plain.filters.problem != problem:
            self._plan(problem)

    def _plan(self, problem: Problem | None) -> None:
        """Choose how the layer's arrays reach cuDNN; by columns where there is no problem for it, or no library."""
        engine = engine_of(self)
        if problem is None or engine.cudnn is None:
            self._plain = self._way = None
            return
        self._plain = self._way = FilterArrays(self, self._filters_for(problem))
        can_fold = self.straight is CORRELATE and len(self.param.bottom) == 1 and len(self.window.size) == 2
        if can_fold and (folding := Folding.of(problem)):
            self._way = FoldedArrays(self, self._filters_for(folding.problem), folding)

    def _filters_for(self, problem: Problem) -> Filters:
        engine, context = engine_of(self), self.context
        assert engine.cudnn is not None
        return Filters(engine, engine.cudnn, problem, context.compute.workspace_bytes, context.choices)

    def replan(self) -> None:
        if self._plain:
            self._plan(self._plain.filters.problem)

    def works(self, bottom: Blobs, top: Blobs, down: bool) -> dict[str, Work]:
        if self._plain is None or self._way is None:
            return {}
        plain, way = self._plain.filters, self._way.filters
        passes = [(way, self.straight, self._after)]
        if self.context.phase == TRAIN:
            passes += [(plain, self.back, NO_EPILOGUE)] * down + [
                (way, WEIGH, NO_EPILOGUE)
            ] * self.param_propagate_down[0]
        return {filters.work(one, after): filters.timing(one, after) for filters, one, after in passes}

    def typed_blobs(self, bottom: Blobs, top: Blobs) -> list[Blob]:
        axes = len(self.window.size) + 2  # the channels on axis 1, as forms have them
        return [blob for blob in (*bottom, *top) if self._plain and len(blob.shape) == axes]

    @property
    def _after(self) -> Epilogue:
        """What comes after the convolution in its pass from bottom to top."""
        return Epilogue(self.bias_term, self.follower_is_next and fusable_relu(self) is not None)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        after, way = self._after, self._way
        if way is None or not way.filters.has(self.straight, after, Epilogue(self.bias_term)):
            super().forward(bottom, top)
            return
        self._weights = way.weights()
        if after.relu and raw(data(top[0])) is not None:
            if self._convolved is None or (self._convolved.bottom, self._convolved.top) != (bottom[0], top[0]):
                self._convolved = Convolved(self, bottom[0], top[0])
            top[0].values.defer(self._convolved)
            return
        for x, y in zip(bottom, top, strict=True):
            self.convolve(x, _write(data(y)))

    def convolve(self, x: Blob, y: Side, rectified: bool = False) -> None:
        """Write the convolution of a bottom into a top; with `rectified`, that of a ReLU over it."""
        way = self._way
        assert way is not None
        operands = way.filters.operands(**{self.source: way.bottom(x), WEIGHTS: self._weights})
        way.filters.run(self.straight, operands, y, self.blobs[1].array if self.bias_term else None, rectified)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        plain, way = self._plain, self._way
        if not (plain and way and plain.filters.has(self.back) and way.filters.has(WEIGH)):
            super().backward(top, propagate_down, bottom)
            return
        for x, y, down in zip(bottom, top, propagate_down, strict=True):
            dy = self._top_diff(y)
            operands = {self.target: dy, WEIGHTS: self._weights}
            if self.param_propagate_down[0]:
                operands[self.source] = way.bottom(x, again=True)
            found = way.filters.operands(**operands)
            if self.param_propagate_down[0]:
                way.add_gradient(found)
            if down:
                if way is not plain:
                    found = plain.filters.operands(**{self.target: dy, WEIGHTS: plain.weights()})
                plain.filters.run(self.back, found, _write(diff(x)))

    def _top_diff(self, top: Blob) -> Side:
        """Return the top's gradient; add its sums over all axes but the channels to the bias's gradient."""
        gradient = diff(top)
        if not (self.bias_term and self.param_propagate_down[1]):
            return _read(gradient)
        engine, bias = engine_of(self), self.blobs[1]
        total, zeros = bias.diff_values.to_add(bias.shape, self.xp)
        unrectified = deferred(gradient, Unrectified) if gradient.is_last else None
        if unrectified:
            dy = Side(raw(gradient), is_last=True)
            add_row_sums(engine, dy.array, total, add=not zeros, where=reading(unrectified.top))
            top.diff_values.overwritten()
            return dy
        dy = _read(gradient)
        if dy.is_last:
            add_row_sums(engine, dy.array, total, add=not zeros)
        else:
            maps = dy.array.reshape(self.images, self.outputs, -1)
            add_channel_sums(engine, maps, total, add=not zeros)
        return dy


def _read(part: BlobValues) -> Side:
    return Side(reading(part), part.is_last)


def _write(part: BlobValues) -> Side:
    return Side(writing(part), part.is_last)


class CudaConvolution(CudnnConvolution, Convolution):
    """Convolution: the bottom is cuDNN's images, the top its maps."""

    straight, back, source, target = CORRELATE, SPREAD, IMAGES, MAPS


class CudaDeconvolution(CudnnConvolution, Deconvolution):
    """Deconvolution: the bottom is cuDNN's maps, the top its images."""

    straight, back, source, target = SPREAD, CORRELATE, MAPS, IMAGES


register("Convolution", CudaConvolution, engine="cuda")
register_depthwise(CudaConvolution, "cuda")
register("Deconvolution", CudaDeconvolution, engine="cuda")
