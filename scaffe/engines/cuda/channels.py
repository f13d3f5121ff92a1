"""Channels: channels cut into chunks, one thread block per chunk, for the kernels of batch_norm.cu.

Where channels lie last, a block of batch_norm_last.cu has a chunk of rows of some channels side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scaffe.engines.cuda.launcher import THREADS, divisor
from scaffe.layers.layer import Layer

CHUNK = 16 * THREADS  # elements of a chunk of one channel; Chunk of batch_norm.cu
LANES = 16  # threads side by side in a row at most; MOST_LANES of batch_norm_last.cu
HELD = 4  # rows that a thread reads at once; HELD there
BLOCKS = 512  # enough to fill any GPU; with more, each would have fewer rows for the constants that it reads first


@dataclass(frozen=True)
class Channels:
    """An array (outer x channels x inner), or with `last` (outer inner x channels).

    `last` is how many channels a thread takes: those of 16 bytes.
    """

    outer: int
    channels: int
    inner: int
    last: int = 0

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
    def lanes(self) -> int:
        """Threads side by side in a row, where channels lie last: a power of two."""
        return min(LANES, 1 << (self.channels // self.last - 1).bit_length())

    @property
    def across(self) -> int:
        """Blocks side by side in a row."""
        return -(-self.channels // (self.last * self.lanes))

    @property
    def size(self) -> int:
        """Elements of a channel in a chunk."""
        if not self.last:
            return CHUNK
        at_once = THREADS // self.lanes
        rows = -(-self.elements // (at_once * max(1, BLOCKS // self.across)))  # of each thread
        return at_once * max(HELD, rows)

    @property
    def chunks(self) -> int:
        """Chunks of a channel."""
        return -(-self.elements // self.size)

    def sums(self, layer: Layer, dtype: Any = np.float32) -> list[Any]:
        """Return two buffers of the layer with one number per chunk each."""
        return [layer.buffer(name, (self.channels * self.chunks,), dtype) for name in ("chunks", "chunks too")]

    def launch(self, engine: Any, kernel: str, x: Any, *arrays: Any, numbers: tuple[float, ...] = ()) -> None:
        """Launch a kernel of batch_norm.cu, or of batch_norm_last.cu in its form for x, over all chunks."""
        if self.last:
            shape = self.channels, self.elements, self.size, self.lanes
            form, blocks = "last" if x.itemsize == 4 else "last_bf16", (self.across, self.chunks)
            engine.launch("batch_norm_last", f"{kernel}_{form}", blocks, x, *arrays, *shape, *numbers)
        else:
            of_part = self.channels, self.inner, self.elements, self.chunks, divisor(self.inner)
            count = self.channels * self.chunks
            engine.launch("batch_norm", f"{kernel}_first", (count,), x, *arrays, *of_part, *numbers)
