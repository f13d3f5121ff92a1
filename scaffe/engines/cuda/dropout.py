"""Dropout by one kernel, which draws the reference form's random numbers, the same over any number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from scaffe.blob import Blob
from scaffe.context import PHILOX_STEP
from scaffe.engines.cuda.engine import engine_of
from scaffe.engines.cuda.forms import BlobValues, arrays, data, diff, kind
from scaffe.engines.cuda.launcher import divisor
from scaffe.engines.cuda.typed_blobs import TypedLayer
from scaffe.layers.dropout import Dropout
from scaffe.layers.layer import Blobs, register


class CudaDropout(TypedLayer, Dropout):
    """Dropout; the backward pass draws the same random numbers again, from the key that the forward pass left.

    Numbers are drawn in C order, so blobs with several pixels a channel are plain. The key lies on the device, so that
    a repeated CUDA graph draws new numbers in each pass.
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
        self._launch(data(bottom[0]), data(top[0]))

    def typed_blobs(self, bottom: Blobs, top: Blobs) -> list[Blob]:
        return [*bottom, *top] if prod(bottom[0].shape[2:]) == 1 else []

    def _launch(self, source: BlobValues, target: BlobValues) -> None:
        _, (x, y) = arrays([source], [target])
        if not self.active:
            if y is not x:
                y[...] = x
            return
        rows, per_row = self.draw_rows(source.blob.shape)
        steps = -(-per_row // PHILOX_STEP)
        numbers = self.buffer("key", (2,), np.uint64), np.int64(self.context.first_row), per_row, steps, divisor(steps)
        factors = float(self.ratio), 1 / (1 - self.ratio)
        engine_of(self).over("dropout", f"dropout{kind(x)}", rows * steps, x, y, *numbers, *factors)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0]:
            self._launch(diff(top[0]), diff(bottom[0]))


register("Dropout", CudaDropout, engine="cuda")
