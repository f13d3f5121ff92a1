"""Gradients of weights as products of matrices, straight into the parameters' plain diffs."""

from __future__ import annotations

from math import prod

import numpy as np

from scaffe.blob import Blob, Shape
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.pooled_memory import PooledMemory
from scaffe.engines.onednn.primitives import Memory, Onednn, Primitive
from scaffe.layers.im2col import SlidingWindow


class RowProduct:
    """The gradient dy^T x of weights (outputs x inputs), by oneDNN's inner product, summed in float32.

    x (rows x inputs), dy (rows x outputs) of the engine's data type, in C order; the sums of dy's columns are written
    to `bias` (outputs). The library's own layout of the gradient would be faster, but then its reorder takes longer
    than the product. Raise NoFastForm where it is not fast.
    """

    def __init__(self, engine: Onednn, rows: int, inputs: int, outputs: int, bias: Memory | None = None):
        low, b = engine.kind, bias.desc if bias else None
        x, dy, w = engine.plain((rows, inputs), low), engine.plain((rows, outputs), low), (outputs, inputs)
        forward = engine.handle, lib.FORWARD_TRAINING, x, engine.any(w, low), b, dy, engine.attributes
        hint = engine.describe("inner_product_forward", *forward, shapes=w)
        given = engine.handle, x, engine.plain(w), b, dy, hint, engine.attributes
        described = engine.describe("inner_product_backward_weights", *given, shapes=w)
        self.x, self.dy, self.dw = (Memory(engine, desc, np.empty(0, np.float32)) for desc in (x, dy, engine.plain(w)))
        memories = {lib.ARG_SRC: self.x, lib.ARG_DIFF_DST: self.dy, lib.ARG_DIFF_WEIGHTS: self.dw}
        self.run = Primitive(engine, described, memories | ({lib.ARG_DIFF_BIAS: bias} if bias else {}))

    def add(self, x: Memory, dy: Memory, blob: Blob) -> None:
        """Add dy^T x to the blob's diff; x and dy hold their rows in their buffers, whatever their shapes."""
        diff, zeros = blob.diff_values.to_add(blob.shape, np)
        target = diff if zeros else np.empty_like(diff)
        for memory, array in ((self.x, x.buffer), (self.dy, dy.buffer), (self.dw, target)):
            memory.point(array)
        self.run.run()
        if not zeros:
            diff += target


class PixelProduct:
    """The gradient of a convolution's weights where the filters have one pixel: the rows are all images' pixels.

    Bottom (N x C x size...) and top (N x F x out...) are bfloat16 with channels last. With strides, the pixels of the
    bottom that the filters read are copied first. Raise NoFastForm where the product is not fast.
    """

    def __init__(self, engine: Onednn, src: Shape, dst: Shape, window: SlidingWindow, bias: Memory | None):
        self.product = RowProduct(engine, dst[0] * prod(dst[2:]), src[1], dst[1], bias)
        self.read = (slice(None), *(slice(None, None, step) for step in window.stride))
        shape = (*src[:2], *dst[2:])
        self.pixels = None if shape == src else PooledMemory(engine, engine.channels_last(shape, engine.kind))

    def add(self, x: Memory, dy: Memory, blob: Blob) -> None:
        """Add the gradient to the weights' diff."""
        if self.pixels is None:
            self.product.add(x, dy, blob)
            return
        bits(self.pixels.acquire())[...] = bits(x)[self.read]
        self.product.add(self.pixels, dy, blob)
        self.pixels.release()


def bits(memory: Memory) -> np.ndarray:
    """Return the bits of bfloat16 values that have their channels last, (N x size... x C)."""
    images, channels, *size = memory.desc.shape
    count = prod(memory.desc.shape)
    return memory.buffer.reshape(-1).view(np.uint16)[:count].reshape(images, *size, channels)
