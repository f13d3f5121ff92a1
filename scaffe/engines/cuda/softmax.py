"""Softmax by kernels, one thread block per row of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.engines.cuda.engine import engine_of
from scaffe.layers.layer import Blobs, register
from scaffe.layers.softmax import Softmax


class CudaSoftmax(Softmax):
    """Softmax over the classes of (outer x classes x inner)."""

    capturable = True

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        self._launch("softmax", bottom[0].array, top[0].array)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0]:
            self._launch("softmax_back", top[0].array, top[0].diff_array, bottom[0].diff_array)

    def _launch(self, kernel: str, *arrays: Any) -> None:
        outer, classes, inner = self.view
        if outer * inner:
            engine_of(self).launch("softmax", kernel, (outer * inner,), *arrays, classes, inner)


register("Softmax", CudaSoftmax, engine="cuda")
