"""Layouts: arrays with their channels last, or of bfloat16, and back; sums over channels."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from scaffe.engines.cuda.launcher import Launcher

TILE = 32  # rows and columns that a block turns, as layouts.cu says
NARROW = 8  # rows or columns up to which a thread for each number is faster
BLOCKS = 1024  # that sum channels: enough to fill any GPU
BF16 = np.dtype(np.uint16)  # bfloat16 numbers, which NumPy and CuPy know no type for
_KERNELS = {
    (np.dtype(np.float32), np.dtype(np.float32)): "float",
    (np.dtype(np.float32), BF16): "to_bf16",
    (BF16, np.dtype(np.float32)): "from_bf16",
}
NONE = np.uint64(0)  # a pointer to nothing


def channels_last(engine: Launcher, source: Any, target: Any) -> None:
    """Write an array (n x channels x ...) into `target` as (n x ... x channels), rounded to its type."""
    rows, columns = source.shape[1], prod(source.shape[2:])
    _turn(engine, source, target, rows, columns)


def channels_first(engine: Launcher, source: Any, target: Any, bias: Any = None, add: bool = False) -> None:
    """Write (n x ... x channels), the memory of `source`, into `target` (n x channels x ...), or add it.

    Each channel has its `bias` added, if there is one.
    """
    rows, columns = prod(target.shape[2:]), target.shape[1]
    _turn(engine, source, target, rows, columns, bias, add)


def _turn(
    engine: Launcher, source: Any, target: Any, rows: int, columns: int, bias: Any = None, add: bool = False
) -> None:
    kind = _KERNELS[source.dtype, target.dtype]
    given = source, target, NONE if bias is None else bias, rows, columns, int(add)
    if min(rows, columns) <= NARROW:
        engine.over("layouts", f"turn_narrow_{kind}", target.size, *given)
        return
    tiles = -(-rows // TILE) * -(-columns // TILE)
    engine.launch("layouts", f"turn_{kind}", (target.size // (rows * columns) * tiles,), *given)


def add_channel_sums(engine: Launcher, maps: Any, total: Any) -> None:
    """Add to `total` (channels) the sums of maps (images x channels x positions), always in one order."""
    images, channels, positions = maps.shape
    parts = min(images, -(-BLOCKS // channels))
    sums = engine.scratch("channel sums", (parts * channels,), np.float32)
    engine.launch("layouts", "channel_sums", (channels, parts), maps, sums, images, channels, positions)
    engine.over("layouts", "add_parts", channels, sums, total, parts)
