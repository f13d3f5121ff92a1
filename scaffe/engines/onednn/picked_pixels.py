"""Filters of one pixel with strides read pixels that are picked from the bottom: no kernel passes over the others."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from scaffe.blob import Shape, Values
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.descriptors import Desc
from scaffe.engines.onednn.operands import Operand
from scaffe.engines.onednn.pooled_memory import pooled
from scaffe.engines.onednn.primitives import Memory, Onednn
from scaffe.engines.onednn.strided_copies import Part, StridedCopies
from scaffe.layers.im2col import SlidingWindow


def over_picked(window: SlidingWindow) -> SlidingWindow:
    """Return the window over the pixels that it meets alone, where it has one pixel and passes over others.

    Other windows are returned as they are, and those whose steps do not divide the images: oneDNN describes no rows of
    an image whose last step reaches into the next one.
    """
    steps = window.stride
    divides = not any(n % step for n, step in zip(window.size, steps, strict=True))
    if prod(window.kernel) > 1 or any(window.pad) or max(steps) == 1 or len(steps) != 2 or not divides:
        return window
    return SlidingWindow(window.out, window.kernel, (1, 1), (0, 0), (1, 1))


class PickedOperand:
    """An Operand of the pixels in layout `desc` (N x C x P x Q), at every step of images of `shape` (N x C x H x W)."""

    def __init__(self, engine: Onednn, desc: Desc, shape: Shape, steps: Sequence[int], brief: bool = False):
        self.desc, self.brief = desc, brief
        self.memory = (pooled if brief else Memory)(engine, desc)
        self._images = Operand(engine, engine.like(desc, shape, lib.F32), brief=True)
        part, in_images, picked = _pixels(engine, desc, shape, steps)
        self._pick = StridedCopies(engine, (part, in_images, picked), [(0, 0)])
        self._version = -1

    def fetch(self, values: Values) -> Memory:
        """Return the pixels, which are valid until the values change."""
        self._pick.run(self._images.fetch(values).buffer, self.memory.acquire().buffer)
        self._images.release()
        self._version = values.version
        return self.memory

    def recall(self, values: Values) -> Memory:
        """Return the pixels of the last fetch; fetch again only where the values may have changed since."""
        return self.memory if values.version == self._version else self.fetch(values)

    def release(self) -> None:
        """Return the buffer of a brief operand's copy to the pool."""
        if self.brief:
            self.memory.release()
            self._version = -1


class SpreadPixels:
    """The gradient of such images, from that of the pixels: zeros in between."""

    def __init__(self, engine: Onednn, desc: Desc, shape: Shape, steps: Sequence[int]):
        self.dx = pooled(engine, engine.like(desc, shape, lib.F32))
        part, in_images, picked = _pixels(engine, desc, shape, steps)
        self._spread = StridedCopies(engine, (part, picked, in_images), [(0, 0)])

    def of(self, pixels: Memory) -> Memory:
        """Return the gradient, and release that of the pixels."""
        dx = self.dx.acquire()
        dx.buffer.fill(0.0)
        self._spread.run(pixels.buffer, dx.buffer)
        pixels.release()
        return dx


def _pixels(engine: Onednn, desc: Desc, shape: Shape, steps: Sequence[int]) -> Part:
    """Return the shape of the pixels as they lie in memory, their strides in the images, and without the others."""
    (rows, columns), (down, across) = shape[2:], desc.shape[2:]
    numbers = _together(engine, desc)
    part = desc.nbytes // (4 * down * across * numbers), down, across, numbers
    in_images = rows * columns * numbers, steps[0] * columns * numbers, steps[1] * numbers, 1
    return part, in_images, (down * across * numbers, across * numbers, numbers, 1)


def _together(engine: Onednn, desc: Desc) -> int:
    """Return how many numbers of a pixel lie together in memory."""
    if desc == engine.channels_last(desc.shape):
        return desc.shape[1]
    return next((size for size, blocked in zip((16, 8), engine.blocked(desc.shape), strict=True) if desc == blocked), 1)
