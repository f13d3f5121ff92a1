"""Channels: channels cut into chunks, one thread block per chunk, for the kernels of batch_norm.cu."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scaffe.engines.cuda.launcher import THREADS, divisor
from scaffe.layers.layer import Layer

CHUNK = 16 * THREADS  # elements of a chunk; CHUNK of batch_norm.cu


@dataclass(frozen=True)
class Channels:
    """An array (outer x channels x inner)."""

    outer: int
    channels: int
    inner: int

    @property
    def elements(self) -> int:
        """Elements of a channel."""
        return self.outer * self.inner

    @property
    def fit(self) -> bool:
        """Whether the kernels can compute it: they count the elements of a channel with a 32-bit int."""
        return 0 < self.elements < 2**31 - CHUNK and self.channels > 0

    @property
    def chunks(self) -> int:
        """Chunks of a channel."""
        return -(-self.elements // CHUNK)

    def sums(self, layer: Layer, dtype: Any) -> list[Any]:
        """Return two buffers of the layer with one number per chunk each."""
        return [layer.buffer(name, (self.channels * self.chunks,), dtype) for name in ("chunks", "chunks too")]

    def launch(self, engine: Any, kernel: str, *arrays: Any, numbers: tuple[float, ...] = ()) -> None:
        """Launch a kernel of batch_norm.cu over all chunks."""
        of_part = self.channels, self.inner, self.elements, self.chunks, divisor(self.inner)
        engine.launch("batch_norm", kernel, (self.channels * self.chunks,), *arrays, *of_part, *numbers)
