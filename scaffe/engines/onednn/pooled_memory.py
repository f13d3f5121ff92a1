"""PooledMemory: a memory for temporary values, whose buffer belongs to the engine's pool."""

from __future__ import annotations

import numpy as np

from scaffe.engines.onednn.descriptors import Desc
from scaffe.engines.onednn.primitives import Memory, Onednn


class PooledMemory(Memory):
    """Temporary values: a buffer of the pool from `acquire` to `release`, or to the time that no blob holds it."""

    def __init__(self, engine: Onednn, desc: Desc):
        self.pool, self._holders, self._count = engine.gradients, 0, -(-desc.nbytes // 4)
        self._whole: np.ndarray | None = None
        self._before: np.ndarray | None = None  # the buffer that it is pointed at, its own or not
        super().__init__(engine, desc, np.empty(0, np.float32))

    def acquire(self) -> PooledMemory:
        """Take a buffer from the pool unless there is one; return this."""
        if self._whole is None:
            whole = self._whole = self.pool.take(self._count, self._before)
            if whole is not self._before:
                self._before = whole
                self.point(whole[: self._count])
        return self

    def hold(self) -> None:
        self._holders += 1

    def drop(self) -> None:
        self._holders -= 1
        self.release()

    def release(self) -> None:
        """Return the buffer to the pool unless a blob holds this memory."""
        if not self._holders and self._whole is not None:
            self.pool.put_back(self._whole)
            self._whole = None


def pooled(engine: Onednn, desc: Desc) -> Memory:
    """Return a pooled memory; in the plain layout one with a buffer of its own, which a blob may keep as its array."""
    return Memory(engine, desc) if desc == engine.plain(desc.shape) else PooledMemory(engine, desc)
