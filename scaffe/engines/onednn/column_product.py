"""The gradient of a convolution's weights as one product of matrices, where channels fill no whole vectors."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from scaffe.blob import Blob, Shape
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.descriptors import NoFastForm
from scaffe.engines.onednn.operands import Gradient
from scaffe.engines.onednn.pooled_memory import PooledMemory
from scaffe.engines.onednn.primitives import Memory, Onednn
from scaffe.engines.onednn.sgemm import MadeFor, Sgemm
from scaffe.engines.onednn.strided_copies import in_memory
from scaffe.layers.im2col import SlidingWindow

ROW = 64  # floats of a window's row, at least: fewer are not copied at memory's speed
SLICE = 1 << 20  # bytes of columns at a time, which stay in the core's cache until they are multiplied
PIXELS = 128  # of a slice, at least: each slice passes over the gradient
CACHE = 1 << 18  # numbers that a core's own cache holds


class BatchSlice(NamedTuple):
    """Some images: their columns, the windows that these are copied from, and the product by the top's gradient."""

    columns: np.ndarray
    windows: np.ndarray
    product: Sgemm


class ColumnProduct:
    """The gradient dy^T columns of a convolution's weights (F x C x k x k).

    The bottom (N x C x H x W) and the top (N x F x P x Q) are float32 with channels last, so that a window's row is k C
    numbers that lie together, and a pixel of the top has a column of k k C numbers: swCaffe's explicit form, for
    whole batches. oneDNN's kernels fill the last vector of channels with zeros and multiply them too, and without
    AVX-512 pass over the gradient for each image; a product of matrices does neither. Raise NoFastForm where they have
    nothing to fill and the gradient is small, or where copying rows would take as long.
    """

    def __init__(self, engine: Onednn, src: Shape, dst: Shape, window: SlidingWindow, bias: Memory | None):
        (images, channels, *_), (outputs, *out), kernel = src, dst[1:], window.kernel
        weights = outputs, channels, *kernel
        if not (takes_columns(engine, window) and outweighs(src, dst, weights)):
            check_windows(engine, src, dst, window)
        rows = kernel[-1] * channels  # numbers of a window's row
        self.bottom, self.top = (images, *src[2:], channels), (images, *out, outputs)
        self.windows = *out, kernel[0], rows  # of an image
        self.window = window
        self.count = min(images, max(-(-PIXELS // prod(out)), SLICE // (4 * prod(self.windows))))  # images of a slice
        self.padded = np.zeros((images, *window.padded, channels), np.float32) if any(window.pad) else None
        columns = self.count * prod(out), kernel[0] * rows
        self.columns = PooledMemory(engine, engine.plain(columns))
        self.dw = Gradient(engine, engine.channels_last((outputs, channels, *kernel)))
        self.engine, self.bias = engine, bias
        self._slices, self._sums = MadeFor(self._cut), MadeFor(self._sum)

    def add(self, x: Memory, dy: Memory, blob: Blob) -> None:
        """Add the gradient to the weights' diff, and write that of the bias."""
        columns, dw = self.columns.acquire().buffer, self.dw.memory.acquire().buffer
        if self.padded is not None:
            (top, left), (rows, across) = self.window.pad, self.window.size
            self.padded[:, top : top + rows, left : left + across] = in_memory(x.buffer).reshape(self.bottom)
        for k, (into, windows, product) in enumerate(self._slices(x.buffer, dy.buffer, columns, dw)):
            np.copyto(into, windows)
            product.run(add=k > 0)
        self.columns.release()
        if self.bias is not None:
            self._sums(dy.buffer, self.bias.buffer).run()
        self.dw.add_to(blob)

    def _cut(self, x: np.ndarray, dy: np.ndarray, columns: np.ndarray, dw: np.ndarray) -> list[BatchSlice]:
        """Return the slices of the batch, of memories that stay where they are."""
        bottom, top = in_memory(x).reshape(self.bottom), in_memory(dy).reshape(self.top)
        bottom = bottom if self.padded is None else self.padded
        return [
            self._slice(bottom[start : start + self.count], top[start : start + self.count], columns, dw)
            for start in range(0, len(bottom), self.count)
        ]

    def _slice(self, bottom: np.ndarray, top: np.ndarray, columns: np.ndarray, dw: np.ndarray) -> BatchSlice:
        image, row, pixel, number = bottom.strides
        strides = image, row * self.window.stride[0], pixel * self.window.stride[1], row, number
        windows = as_strided(bottom, (len(bottom), *self.windows), strides, writeable=False)
        into = columns.reshape(-1)[: windows.size].reshape(windows.shape)
        outputs = top.shape[-1]
        product = Sgemm(
            self.engine,
            top.reshape(-1, outputs).T,
            into.reshape(top.size // outputs, -1),
            dw.reshape(-1)[: outputs * prod(self.windows[2:])].reshape(outputs, -1),
        )
        return BatchSlice(into, windows, product)

    def _sum(self, dy: np.ndarray, bias: np.ndarray) -> Sgemm:
        pixels = in_memory(dy).reshape(-1, self.top[-1])
        return Sgemm(self.engine, np.ones((1, len(pixels)), np.float32), pixels, bias.reshape(1, -1))


def outweighs(src: Shape, dst: Shape, weights: Shape) -> bool:
    """Return whether weights of this shape take more than the cache, and a bottom and its top less than they."""
    numbers: int = prod(weights)
    return numbers > max(CACHE, prod(src) + prod(dst))


def takes_columns(engine: Onednn, window: SlidingWindow) -> bool:
    """Return whether the columns of such windows are faster than oneDNN where the weights outweigh bottom and top."""
    has_rows = len(window.size) == 2 and prod(window.kernel) > 1 and set(window.dilation) == {1}
    return has_rows and not engine.library.isa & lib.ISA_AVX512


def check_windows(engine: Onednn, src: Shape, dst: Shape, window: SlidingWindow) -> None:
    """Raise NoFastForm for channels that fill whole vectors, and windows with short rows or outside of the bottom."""
    vector = 16 if engine.library.isa & lib.ISA_AVX512 else 8
    if not (src[1] % vector and dst[1] % vector) or window.kernel[-1] * src[1] < ROW:
        raise NoFastForm("channels that fill whole vectors, or windows with short rows")
    if len(src) != 4 or any(window.pad) or set(window.dilation) != {1}:
        raise NoFastForm("windows that are not parts of images")
