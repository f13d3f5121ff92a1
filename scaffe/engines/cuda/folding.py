"""Folding: a convolution over few channels as one over many, each of whose pixels is a block of the images' pixels.

Tensor cores multiply 8 channels of bfloat16 at once, or 4 of TF32: for the 3 channels of a first layer the library pads
them. AlexNet's first layer (11 x 11 kernels, stride 4, 3 channels) has 968 products for each output so. Folded by
blocks of 4 x 4 pixels it is a convolution with 3 x 3 kernels, stride 1, over 48 channels: 432 products, with the same
sums and some zeros among them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from scaffe.engines.cuda.cudnn import Problem
from scaffe.engines.cuda.forms import TYPES, kind, last_shape
from scaffe.engines.cuda.launcher import Launcher, divisor


@dataclass(frozen=True)
class FoldedAxis:
    """One axis: blocks of `block` pixels, one at each `step` pixels, the first `lead` pixels before the picture.

    `length` blocks are read by kernels of `kernel` blocks, which begin `shift` pixels before the first weight.
    """

    block: int
    step: int
    lead: int
    shift: int
    kernel: int
    length: int

    @staticmethod
    def of(kernel: int, stride: int, pad: int, out: int, whole: bool) -> FoldedAxis:
        """Return the axis with blocks as long as the stride; with `whole`, as long as the kernel, for a stride of 1."""
        if whole and stride == 1:
            return FoldedAxis(kernel, 1, pad, 0, 1, out)
        lead = -(-pad // stride) * stride
        blocks = (kernel - 1 + lead - pad) // stride + 1
        return FoldedAxis(stride, stride, lead, lead - pad, blocks, out + blocks - 1)


@dataclass(frozen=True)
class Folding:
    """A convolution over two axes, folded: `problem` is that over the blocks."""

    channels: int
    rows: FoldedAxis
    columns: FoldedAxis
    problem: Problem

    @staticmethod
    def of(problem: Problem) -> Folding | None:
        """Return the folded convolution where it has fewer products than the padded one, else None."""
        dtype: Any = TYPES.get(problem.compute)
        if dtype is None or len(problem.pad) != 2 or problem.groups > 1 or set(problem.dilation) != {1}:
            return None
        at_once, channels = 16 // dtype.itemsize, problem.images[1]
        sides = zip(problem.weights[2:], problem.stride, problem.pad, problem.maps[2:], (False, True), strict=True)
        rows, columns = (FoldedAxis.of(*side) for side in sides)
        pitch = _padded(channels * rows.block * columns.block, at_once)
        shape = rows.kernel, columns.kernel
        if pitch * prod(shape) >= _padded(channels, at_once) * prod(problem.weights[2:]):
            return None
        folded = replace(
            problem,
            images=(problem.images[0], pitch, rows.length, columns.length),
            weights=(problem.weights[0], pitch, *shape),
            stride=(1, 1),
            pad=(0, 0),
        )
        return Folding(channels, rows, columns, folded)

    def fold_images(self, engine: Launcher, images: Any, target: Any) -> None:
        """Write images (N x C x H x W, float32) folded into `target` (channels last)."""
        steps = self.rows.step, self.columns.step, self.rows.lead, self.columns.lead
        self._fold(engine, images, target, self.problem.images, steps)

    def fold_weights(self, engine: Launcher, weights: Any, target: Any) -> None:
        """Write weights (F x C x kernel, float32) folded into `target` (channels last)."""
        steps = self.rows.block, self.columns.block, self.rows.shift, self.columns.shift
        self._fold(engine, weights, target, self.problem.weights, steps)

    def _fold(self, engine: Launcher, source: Any, target: Any, shape: tuple[int, ...], steps: tuple[int, ...]) -> None:
        many, (_, pitch, high, wide) = 16 // target.itemsize, shape
        packs = pitch // many
        sizes = *source.shape[2:], high, wide, *steps, *self._blocks
        divisors = (high, wide * packs, packs, self.channels, self.columns.block)
        count = target.size // many
        engine.over("fold", f"fold{kind(target)}", count, source, target, *sizes, *map(divisor, divisors))

    def unfold_gradient(self, engine: Launcher, gradient: Any, target: Any, add: bool) -> None:
        """Write the gradient of the folded weights into that of the weights (F x C x kernel, float32), or add it."""
        sizes = *target.shape[2:], *self.problem.weights[2:], self.rows.shift, self.columns.shift, int(add)
        divisors = map(divisor, target.shape[2:])
        given = gradient, target, *sizes, *self._blocks, *divisors
        engine.over("fold", f"unfold{kind(gradient)}", target.size, *given)

    @property
    def _blocks(self) -> tuple[int, ...]:
        return self.channels, self.rows.block, self.columns.block, self.problem.images[1]

    @property
    def weights_shape(self) -> tuple[int, ...]:
        """The shape of the array that holds the folded weights, or their gradient."""
        return last_shape(self.problem.weights)


def _padded(channels: int, multiple: int) -> int:
    return -(-channels // multiple) * multiple
