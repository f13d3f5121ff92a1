"""Channels: channels cut into chunks, one thread block per chunk, for the kernels of batch_norm.cu."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scaffe.engines.cuda.launcher import THREADS, divisor
from scaffe.layers.layer import Layer

CHUNK = 16 * THREADS  # elements of a chunk of one channel; First of batch_norm.cu
ROWS, LANES = THREADS, 8  # rows of a chunk, and 16 bytes of channels in each, where channels lie last; Last there


@dataclass(frozen=True)
class Channels:
    """An array (outer x channels x inner), or with `last` (outer inner x channels)."""

    outer: int
    channels: int
    inner: int
    last: bool = False

    @property
    def elements(self) -> int:
        """Elements of a channel."""
        return self.outer * self.inner

    @property
    def fit(self) -> bool:
        """Whether the kernels can compute it: they count the elements of a channel with a 32-bit int."""
        return 0 < self.elements < 2**31 - CHUNK and self.channels > 0

    @property
    def fits_last(self) -> bool:
        """Whether the kernels for channels last can compute it: 16 bytes hold up to 8 channels."""
        return self.fit and self.channels % 8 == 0

    @property
    def size(self) -> int:
        """Elements of a channel in a chunk."""
        return ROWS if self.last else CHUNK

    @property
    def chunks(self) -> int:
        """Chunks of a channel."""
        return -(-self.elements // self.size)

    def sums(self, layer: Layer, dtype: Any = np.float32) -> list[Any]:
        """Return two buffers of the layer with one number per chunk each."""
        return [layer.buffer(name, (self.channels * self.chunks,), dtype) for name in ("chunks", "chunks too")]

    def launch(self, engine: Any, kernel: str, x: Any, *arrays: Any, numbers: tuple[float, ...] = ()) -> None:
        """Launch a kernel of batch_norm.cu, in its form for x, over all chunks."""
        of_part = self.channels, self.inner, self.elements, self.chunks, divisor(self.inner)
        groups = -(-self.channels * x.itemsize // (16 * LANES)) if self.last else self.channels
        form = "first" if not self.last else "last" if x.itemsize == 4 else "last_bf16"
        engine.launch("batch_norm", f"{kernel}_{form}", (groups * self.chunks,), x, *arrays, *of_part, *numbers)
