"""Dropout by one kernel, which draws the reference form's random numbers, the same over any number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.context import PHILOX_STEP
from scaffe.engines.cuda.engine import engine_of
from scaffe.engines.cuda.launcher import divisor
from scaffe.layers.dropout import Dropout
from scaffe.layers.layer import Blobs, register


class CudaDropout(Dropout):
    """Dropout; the backward pass draws the same random numbers again, from the key that the forward pass left.

    The key lies on the device, so that a repeated CUDA graph draws new numbers in each pass.
    """

    capturable = True

    def begin_pass(self) -> None:
        if self.active:
            key = self.buffer("key", (2,), np.uint64)
            words = map(np.uint64, self.context.philox_key(*self.draw_key()))
            engine_of(self).over("dropout", "set_key", 2, key, *words)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        if not engine_of(self).recording:
            self.begin_pass()
        self._drop(bottom[0].array, top[0].array)

    def _drop(self, source: Any, target: Any) -> None:
        if not self.active:
            return super()._drop(source, target)
        rows, per_row = self.draw_rows(source.shape)
        steps = -(-per_row // PHILOX_STEP)
        numbers = self.buffer("key", (2,), np.uint64), np.int64(self.context.first_row), per_row, steps, divisor(steps)
        factors = float(self.ratio), 1 / (1 - self.ratio)
        engine_of(self).over("dropout", "dropout", rows * steps, source, target, *numbers, *factors)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0]:
            self._drop(top[0].diff_array, bottom[0].diff_array)


register("Dropout", CudaDropout, engine="cuda")
