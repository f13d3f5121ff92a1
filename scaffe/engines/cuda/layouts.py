"""Conversions between channels first and channels last, float32 and bfloat16; sums and biases of channels."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from scaffe.engines.cuda.channels import Channels
from scaffe.engines.cuda.launcher import THREADS, Launcher, divisor

TILE = 32  # rows and columns of a block's tile; TILE of layouts.cu
NARROW = 8  # rows or columns; up to here one thread per element is faster
BLOCKS = 512  # that sum rows: enough to fill any GPU
WARP = 32  # threads
ROWS = 16  # that a thread sums up at least
MOST_ACROSS, LINE = 4, 8  # blocks that share a row, and threads of each at least: they read 128 bytes together
BF16 = np.dtype(np.uint16)  # the bits of bfloat16, for which NumPy and CuPy have no type
_KERNELS = {
    (np.dtype(np.float32), np.dtype(np.float32)): "float",
    (np.dtype(np.float32), BF16): "to_bf16",
    (BF16, np.dtype(np.float32)): "from_bf16",
    (BF16, BF16): "bf16",
}
NONE = np.uint64(0)  # a null pointer


def channels_last(engine: Launcher, source: Any, target: Any) -> None:
    """Write an array (n x channels x ...) into `target` (n x ... x channels), rounded to the target's type."""
    rows, columns = source.shape[1], prod(source.shape[2:])
    _turn(engine, source, target, rows, columns)


def channels_first(engine: Launcher, source: Any, target: Any, bias: Any = None, add: bool = False) -> None:
    """Write `source` (n x ... x channels, flat) into `target` (n x channels x ...), or add it.

    `bias` (channels) is added too, if given.
    """
    rows, columns = prod(target.shape[2:]), target.shape[1]
    _turn(engine, source, target, rows, columns, bias, add)


def _turn(
    engine: Launcher, source: Any, target: Any, rows: int, columns: int, bias: Any = None, add: bool = False
) -> None:
    kind = _KERNELS[source.dtype, target.dtype]
    if kind == "to_bf16" and 1 in (rows, columns) and bias is None and not add:  # nothing to be turned
        engine.over("rows", "to_bf16", target.size, source, target, each=8)
        return
    given = source, target, NONE if bias is None else bias, rows, columns, int(add)
    if min(rows, columns) <= NARROW:
        engine.over("layouts", f"turn_narrow_{kind}", target.size, *given, divisor(rows), divisor(columns))
        return
    tiles = -(-rows // TILE) * -(-columns // TILE)
    engine.launch("layouts", f"turn_{kind}", (target.size // (rows * columns) * tiles,), *given)


def add_channel_sums(engine: Launcher, maps: Any, total: Any, add: bool = True) -> None:
    """Add to `total` (channels) the sums of maps (images x channels x positions), in a fixed order; or overwrite it."""
    parts = Channels(*maps.shape)
    if not parts.fit:
        total[...] = maps.sum(axis=(0, 2)) + (total if add else 0)
        return
    sums = engine.scratch("channel sums", (parts.channels * parts.chunks,), np.float32)
    parts.launch(engine, "sum_chunks", maps, sums)
    engine.launch(
        "batch_norm", "scale_gradients", (parts.channels,), sums, NONE, parts.chunks, NONE, total, 0, int(add)
    )


def add_row_sums(engine: Launcher, maps: Any, total: Any, add: bool = True, where: Any = None) -> None:
    """Add to `total` (channels) the sums of maps (N x ... x channels) over all other axes; or overwrite it.

    With `where`, an array like `maps`, these are first set to 0 where it is not above 0: the gradient of a ReLU.
    """
    channels = maps.shape[-1]
    rows, (ending, many) = maps.size // channels, pack_of(maps)
    groups = channels // many
    across, lanes = _side_by_side(groups)
    parts = min(-(-BLOCKS // across), -(-rows * lanes // (THREADS * ROWS)))
    sums = engine.scratch("channel sums", (parts * channels,), np.float32)
    shape = np.int64(rows), channels, lanes
    if where is None:
        engine.launch("rows", f"row_sums{ending}", (across, parts), maps, sums, *shape, 0)
    else:
        engine.launch("rows", f"unrectified_sums{ending}", (across, parts), where, maps, sums, *shape)
    engine.launch(
        "rows", "row_sums_1", (-(-channels // WARP), 1), sums, total, np.int64(parts), channels, WARP, int(add)
    )


def _side_by_side(groups: int) -> tuple[int, int]:
    """Return how many blocks read a row of so many packs, and how many threads of each, so that the fewest are idle."""
    least = -(-groups // THREADS)
    ways = [(across, -(-groups // across)) for across in range(least, least + MOST_ACROSS)]
    wide = [way for way in ways if way[1] >= LINE] or ways[:1]
    return max(wide, key=lambda way: groups * (THREADS // way[1]) / way[0])


def finish_rows(engine: Launcher, maps: Any, bias: Any = None, rectified: bool = False) -> None:
    """Add `bias` (channels), if given, to maps (N x ... x channels), then replace what is below 0 if `rectified`."""
    ending, many = pack_of(maps)
    groups = maps.shape[-1] // many
    numbers = groups, divisor(groups), int(rectified)
    engine.over("rows", f"finish{ending}", maps.size // many, maps, NONE if bias is None else bias, *numbers)


def pack_of(maps: Any) -> tuple[str, int]:
    """Return the ending of the names of kernels for maps channels last, and the channels that a thread takes at once.

    These are 16 bytes where they divide the channels, and the maps begin at a multiple of them.
    """
    low = maps.dtype == BF16
    many = 8 if low else 4
    many = 1 if maps.shape[-1] % many or maps.data.ptr % 16 else many
    return f"{'_bf16' if low else ''}_{many}", many
