"""Convolution and Deconvolution by cuDNN; without it, over two spatial axes, by a columns kernel and cuBLAS."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from scaffe.choices import Work
from scaffe.context import TRAIN
from scaffe.engines.cuda.cudnn import CORRELATE, IMAGES, MAPS, SPREAD, WEIGH, WEIGHTS, Pass
from scaffe.engines.cuda.engine import engine_of
from scaffe.engines.cuda.filters import Filters, problem_of
from scaffe.engines.cuda.layouts import add_channel_sums
from scaffe.layers.base_convolution import BaseConvolution
from scaffe.layers.convolution import Convolution
from scaffe.layers.deconvolution import Deconvolution
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


class CudnnConvolution(ColumnConvolution):
    """Compute by cuDNN where it is installed and supports the convolution, else by columns.

    `straight` is cuDNN's pass from bottom to top, `back` the one for the bottom's gradient. `source` and `target` are
    the roles of bottom and top in them.
    """

    straight: Pass
    back: Pass
    source: str
    target: str
    _filters: Filters | None = None

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        super().reshape(bottom, top)
        problem = problem_of(self)
        if self._filters is None or self._filters.problem != problem:
            self._filters = self._filters_for(problem)

    def _filters_for(self, problem: Any) -> Filters | None:
        context, engine = self.context, engine_of(self)
        if problem is None or engine.cudnn is None:
            return None
        return Filters(engine, engine.cudnn, problem, context.compute.workspace_bytes, context.choices)

    def replan(self) -> None:
        if self._filters:
            self._filters = self._filters_for(self._filters.problem)

    def works(self, bottom: Blobs, top: Blobs, down: bool) -> dict[str, Work]:
        if self._filters is None:
            return {}
        passes = [(self.straight, self.bias_term)]
        if self.context.phase == TRAIN:
            passes += [(self.back, False)] * down + [(WEIGH, False)] * self.param_propagate_down[0]
        return {self._filters.work(*one): self._filters.timing(*one) for one in passes}

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        filters = self._with((self.straight, self.bias_term))
        if filters is None:
            super().forward(bottom, top)
            return
        kernel, bias = self.blobs[0].array, self.blobs[1].array if self.bias_term else None
        for x, y in zip(bottom, top, strict=True):
            operands = filters.operands(**{self.source: x.array, WEIGHTS: kernel})
            filters.run(self.straight, operands, y.array, bias)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        filters = self._with((self.back, False), (WEIGH, False))
        if filters is None:
            super().backward(top, propagate_down, bottom)
            return
        for x, y, down in zip(bottom, top, propagate_down, strict=True):
            arrays = {self.source: x.array, self.target: y.diff_array, WEIGHTS: self.blobs[0].array}
            operands = filters.operands(**arrays)
            if self.param_propagate_down[0]:
                weights = self.blobs[0]
                diff, zeros = weights.diff_values.to_add(weights.shape, self.xp)
                filters.run(WEIGH, operands, diff, add=not zeros)
            if self.bias_term and self.param_propagate_down[1]:
                maps = y.diff_array.reshape(self.images, self.outputs, -1)
                add_channel_sums(engine_of(self), maps, self.blobs[1].diff_array)
            if down:
                filters.run(self.back, operands, x.diff_array)

    def _with(self, *passes: tuple[Pass, bool]) -> Filters | None:
        """Return the filters if cuDNN has a kernel for each of these passes, else None."""
        filters = self._filters
        return filters if filters and all(filters.kernel(*one) for one in passes) else None


class CudaConvolution(CudnnConvolution, Convolution):
    """Convolution: the bottom is cuDNN's images, the top its maps."""

    straight, back, source, target = CORRELATE, SPREAD, IMAGES, MAPS


class CudaDeconvolution(CudnnConvolution, Deconvolution):
    """Deconvolution: the bottom is cuDNN's maps, the top its images."""

    straight, back, source, target = SPREAD, CORRELATE, MAPS, IMAGES


register("Convolution", CudaConvolution, engine="cuda")
register("Deconvolution", CudaDeconvolution, engine="cuda")
