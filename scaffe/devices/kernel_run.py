"""KernelRun: one run of an engine's kernel, as tools that watch an engine see it."""

from __future__ import annotations

from typing import NamedTuple

REORDER = "reorder"  # the operation that changes a layout or a number format, and computes nothing


class Tensor(NamedTuple):
    """Values in memory: their address, and their number format and layout, such as "bf16 aBcd16b"."""

    address: int
    format: str

    @property
    def numbers(self) -> str:
        """The number format alone."""
        return self.format.partition(" ")[0]


class KernelRun(NamedTuple):
    """A run: the operation, its wall time in seconds, and the first of what it read and of what it wrote.

    `nbytes` are those of all that it read and wrote, the library's scratch memory apart.
    """

    operation: str
    seconds: float
    source: Tensor
    target: Tensor
    nbytes: int = 0
