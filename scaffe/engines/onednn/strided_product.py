"""The gradient of the weights of a net's first convolution, whose filters have strides and few channels."""

from __future__ import annotations

from math import prod

import numpy as np

from scaffe.blob import Blob, Shape
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.descriptors import Desc, NoFastForm, PrimitiveDesc
from scaffe.engines.onednn.pooled_memory import PooledMemory
from scaffe.engines.onednn.primitives import Memory, Onednn, Primitive, reorder
from scaffe.engines.onednn.row_product import bits
from scaffe.layers.im2col import SlidingWindow

CHANNELS = 4  # of images: with more oneDNN's convolution is as fast


class StridedProduct:
    """The gradient of a convolution's weights (F x C x k x k), stride s in both axes, with s x s pixels as one.

    The bottom (N x C x H x W) and the top (N x F x P x Q) are bfloat16 with channels last. Squares of s x s pixels of
    the padded bottom become pixels of s s C channels, the filters ones of ceil(k / s) such pixels with stride 1, for
    which oneDNN is two to three times as fast. Raise NoFastForm where it is not fast.
    """

    def __init__(self, engine: Onednn, src: Shape, dst: Shape, window: SlidingWindow, bias: Memory | None):
        step, kernel, pad = window.stride[0], window.kernel, window.pad
        if len(src) != 4 or src[1] > CHANNELS or not _has_squares(window):
            raise NoFastForm("an image of many channels, or a window that does not move by squares")
        (images, channels, *size), (outputs, *out) = src, dst[1:]
        self.step, self.kernel, self.pad = step, kernel, pad
        self.filter = [-(-k // step) for k in kernel]
        squares = [positions + k - 1 for positions, k in zip(out, self.filter, strict=True)]
        self.used = [min(n, step * count - p) for n, count, p in zip(size, squares, pad, strict=True)]
        padded = images, channels, *(step * count for count in squares)
        self.padded = Memory(engine, engine.channels_last(padded, engine.kind))  # zeros outside of the image
        deep = images, step * step * channels, *squares
        self.deep = PooledMemory(engine, engine.channels_last(deep, engine.kind))
        pixels, inside = _inside(engine, self.padded.desc, step)
        self.squares = Memory(engine, inside, np.empty(0, np.float32))  # the memory of `deep`
        self.fold = reorder(Memory(engine, pixels, self.padded.buffer), self.squares)
        self.shape = outputs, deep[1], *self.filter
        described = _describe(engine, deep, dst, self.shape, bias)
        self.dw = PooledMemory(engine, described.desc(lib.QUERY_DIFF_WEIGHTS, self.shape))
        memories = {lib.ARG_SRC: self.deep, lib.ARG_DIFF_WEIGHTS: self.dw}
        self.run = Primitive(engine, described, memories | ({lib.ARG_DIFF_BIAS: bias} if bias else {}))

    def add(self, x: Memory, dy: Memory, blob: Blob) -> None:
        """Add the gradient to the weights' diff."""
        (top, left), (rows, columns) = self.pad, self.used
        bits(self.padded)[:, top : top + rows, left : left + columns] = bits(x)[:, :rows, :columns]
        self.squares.point(self.deep.acquire().buffer)
        self.fold.run()
        self.dw.acquire()
        self.run.bind(lib.ARG_DIFF_DST, dy)
        self.run.run()
        self.deep.release()
        written = np.empty(self.shape, np.float32)
        self.dw.store(written)
        self.dw.release()
        diff, zeros = blob.diff_values.to_add(blob.shape, np)
        gradient = self._unfolded(written)
        np.copyto(diff, gradient) if zeros else np.add(diff, gradient, out=diff)

    def _unfolded(self, written: np.ndarray) -> np.ndarray:
        """Return the gradient of filters of pixels, from that of filters of squares."""
        (rows, columns), step = self.filter, self.step
        parts = written.reshape(len(written), step, step, -1, rows, columns)  # F x row x column in the square x C x ...
        whole = parts.transpose(0, 3, 4, 1, 5, 2).reshape(len(written), -1, rows * step, columns * step)
        return whole[:, :, : self.kernel[0], : self.kernel[1]]


def _has_squares(window: SlidingWindow) -> bool:
    """Return whether a window moves by the same number of pixels in both axes, more than 1, and has no dilation."""
    return len(set(window.stride)) == 1 and window.stride[0] > 1 and set(window.dilation) == {1}


def _inside(engine: Onednn, padded: Desc, step: int) -> tuple[Desc, Desc]:
    """Return images as pixels and as squares: image, row of squares, row inside, column of squares, pixels of a row."""
    images, channels, rows, columns = padded.shape
    shape = images, rows // step, step, columns // step, step * channels
    strides = prod(shape[1:]), prod(shape[2:]), shape[4], step * shape[4], 1
    return engine.plain(shape, engine.kind), engine.strided(shape, strides, engine.kind)


def _describe(engine: Onednn, src: Shape, dst: Shape, weights: Shape, bias: Memory | None) -> PrimitiveDesc:
    x, y = engine.channels_last(src, engine.kind), engine.channels_last(dst, engine.kind)
    b = bias.desc if bias else None
    geometry = [lib.dims(v) for v in ((1, 1), (0, 0), (0, 0), (0, 0))]
    direct = lib.CONVOLUTION_DIRECT
    given = engine.handle, lib.FORWARD_TRAINING, direct, x, engine.any(weights, engine.kind), b, y, *geometry
    hint = engine.describe("convolution_forward", *given, engine.attributes, shapes=weights)
    given = engine.handle, direct, x, engine.any(weights), b, y, *geometry, hint
    return engine.describe("convolution_backward_weights", *given, engine.attributes, shapes=weights)
