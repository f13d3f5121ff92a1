"""Convolution and Deconvolution over two spatial axes: columns by a kernel, products by cuBLAS."""

from __future__ import annotations

from math import prod
from typing import Any

from scaffe.layers.base_convolution import BaseConvolution
from scaffe.layers.convolution import Convolution
from scaffe.layers.deconvolution import Deconvolution
from scaffe.layers.im2col import Window
from scaffe.layers.layer import register

COLUMN_BYTES = 1 << 28  # of columns at a time: a GPU's products have to be large


class CudaColumns:
    """Unfold n images into columns (C kernel... x n out...) and fold columns' gradients back.

    The positions of an image run fastest, so that threads next to each other write next to each other.
    """

    def __init__(self, layer: BaseConvolution, images: int, channels: int, window: Window):
        self.engine, self.images, self.channels = layer.context.engine, images, channels
        axes = zip(window.size, window.out, window.kernel, window.stride, window.pad, window.dilation, strict=True)
        self.sides = [number for axis in axes for number in axis]
        self.layer, self.shape = layer, (channels * prod(window.kernel), images * prod(window.out))

    @property
    def matrix(self) -> Any:
        """The columns, in memory that all layers have in turn."""
        return self.layer.scratch("columns", self.shape, self.layer.blobs[0].array.dtype)

    def unfold(self, images: Any) -> Any:
        """Return the columns of `images` as a matrix, which the next call overwrites."""
        matrix = self.matrix
        self._launch("unfold", matrix.size, images, matrix)
        return matrix

    def fold(self, images: Any) -> None:
        """Write into `images` the sum, for each pixel, of the entries of `matrix` that it is unfolded to."""
        self._launch("fold", images.size, self.matrix, images)

    def _launch(self, kernel: str, count: int, source: Any, target: Any) -> None:
        self.engine.over("columns", kernel, count, source, target, self.images, self.channels, *self.sides)


class Unfolding(BaseConvolution):
    """What the CUDA forms have of their own; with other than two spatial axes they are the reference forms."""

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


class CudaConvolution(Unfolding, Convolution):
    """Convolution."""


class CudaDeconvolution(Unfolding, Deconvolution):
    """Deconvolution."""


register("Convolution", CudaConvolution, engine="cuda")
register("Deconvolution", CudaDeconvolution, engine="cuda")
