"""Channels: an array's channels cut into chunks, a block for each, for the kernels of batch_norm.cu."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scaffe.engines.cuda.launcher import THREADS, divisor
from scaffe.layers.layer import Layer

CHUNK = 16 * THREADS  # elements of a block, as batch_norm.cu says


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
        """Whether the kernels, which count a channel's elements by C's int, can take it."""
        return 0 < self.elements < 2**31 - CHUNK and self.channels > 0

    @property
    def chunks(self) -> int:
        """Chunks of a channel."""
        return -(-self.elements // CHUNK)

    def sums(self, layer: Layer, dtype: Any) -> list[Any]:
        """Return room for two numbers of each chunk."""
        return [layer.buffer(name, (self.channels * self.chunks,), dtype) for name in ("chunks", "chunks too")]

    def launch(self, engine: Any, kernel: str, *arrays: Any, numbers: tuple[float, ...] = ()) -> None:
        """Launch a kernel over all chunks."""
        of_part = self.channels, self.inner, self.elements, self.chunks, divisor(self.inner)
        engine.launch("batch_norm", kernel, (self.channels * self.chunks,), *arrays, *of_part, *numbers)
