"""BufferPool: buffers that the temporary memories of an engine share, one after the other."""

from __future__ import annotations

import numpy as np

from scaffe.blobs.packed import aligned_zeros


class BufferPool:
    """Free buffers for gradients and for copies that are read once."""

    def __init__(self) -> None:
        self.free: list[np.ndarray] = []

    def take(self, count: int, last: np.ndarray | None = None) -> np.ndarray:
        """Return a float32 buffer of `count` to 4 `count` elements, with any content; the caller owns it.

        It is the `last` one that the caller had, if that is free: in a net whose shapes stay it is, from pass to pass.
        """
        for k, buffer in enumerate(self.free):
            if buffer is last:
                return self.free.pop(k)
        fitting = [buffer for buffer in self.free if count <= buffer.size <= 4 * count]
        if not fitting:
            return aligned_zeros(count)
        best = min(fitting, key=lambda buffer: buffer.size)
        self.free = [buffer for buffer in self.free if buffer is not best]
        return best

    def put_back(self, buffer: np.ndarray) -> None:
        """Add a buffer to the free ones."""
        self.free.append(buffer)
