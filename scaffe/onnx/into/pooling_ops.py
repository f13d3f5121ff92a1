"""MaxPool, AveragePool and their global forms."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from scaffe.layers.pooling_axis import Axis
from scaffe.onnx.grown_net import GrownNet
from scaffe.onnx.into.convolution_ops import pads_of
from scaffe.onnx.readers import Op, Unreadable, reads


class PooledSide(NamedTuple):
    """The windows of an axis, as an op has them; those of a layer, with `pad`, begin `lead` windows earlier."""

    size: int
    kernel: int
    stride: int
    begin: int
    end: int
    out: int
    pad: int = 0
    lead: int = 0


@reads("GlobalAveragePool", "GlobalMaxPool")
def _global(layers: GrownNet, op: Op) -> str:
    x = op.blob(layers)
    shape = layers.shape(x)
    pool = "AVE" if op.kind == "GlobalAveragePool" else "MAX"
    flat = layers.reshape(x, [*shape[:2], int(np.prod(shape[2:])), 1]) if len(shape) != 4 else x
    y = layers.add("Pooling", [flat], pooling_param=dict(pool=pool, global_pooling=True))
    return layers.reshape(y, [*shape[:2], *(1,) * (len(shape) - 2)])


@reads("MaxPool", "AveragePool")
def _pool(layers: GrownNet, op: Op) -> str:
    x = op.blob(layers)
    shape, kernel = layers.shape(x), list(op.get("kernel_shape"))
    if any(op.used[1:]):
        raise Unreadable("its Indices are used, which count otherwise than a layer's")
    if any(d != 1 for d in op.get("dilations") or [1]):
        raise Unreadable(f"its dilations are {list(op.get('dilations'))}, where a layer has 1")
    if len(kernel) > 2:
        raise Unreadable(f"its windows have {len(kernel)} axes, where a layer has 2")
    strides = list(op.get("strides") or [1] * len(kernel))
    begins, ends = pads_of(op, shape[2:], kernel, strides)
    numbers = [list(shape[2:]), kernel, strides, begins, ends]
    if len(kernel) == 1:  # an axis beside it
        x = layers.reshape(x, [*shape, 1])
        numbers = [[*some, more] for some, more in zip(numbers, (1, 1, 1, 0, 0), strict=True)]
    sides = [_caffes(_windows(op, *side)) for side in zip(*numbers, strict=True)]
    mode = next((mode for mode in ("FLOOR", "CEIL") if _count(sides, mode)), None)
    if mode is None:
        raise Unreadable("a layer has no windows at these places")
    y = _pooled(layers, op, x, sides, mode)
    return y if len(kernel) == 2 else layers.reshape(y, layers.shape(y)[:3])


def _windows(op: Op, size: int, kernel: int, stride: int, begin: int, end: int) -> PooledSide:
    room = size + begin + end - kernel
    out = (-(-room // stride) if op.get("ceil_mode", 0) else room // stride) + 1
    if op.get("ceil_mode", 0) and (out - 1) * stride >= size + begin:  # a window of padding at the end alone
        out -= 1
    return PooledSide(size, kernel, stride, begin, end, out)


def _caffes(one: PooledSide) -> PooledSide:
    """Return the windows with the padding of a layer: the same at both ends, and less than the kernel."""
    for pad in range(one.begin, one.kernel):
        lead, rest = divmod(pad - one.begin, one.stride)
        room = one.size + 2 * pad - one.kernel
        is_inside = (lead + one.out - 1) * one.stride - pad < one.size
        if not rest and is_inside and -(-room // one.stride) + 1 >= lead + one.out:
            return one._replace(pad=pad, lead=lead)
    raise Unreadable("its padding leaves windows without a value, or is as large as a window")


def _count(sides: list[PooledSide], mode: str) -> list[int]:
    """Return how many windows a layer has on each axis; [] where these are too few, or lie outside."""
    counts = []
    for one in sides:
        room = one.size + 2 * one.pad - one.kernel
        count = (room // one.stride if mode == "FLOOR" else -(-room // one.stride)) + 1
        if any(side.pad for side in sides) and (count - 1) * one.stride >= one.size + one.pad:
            count -= 1
        if count < one.lead + one.out or (count - 1) * one.stride - one.pad >= one.size:
            return []
        counts.append(count)
    return counts


def _pooled(layers: GrownNet, op: Op, x: str, sides: list[PooledSide], mode: str) -> str:
    pool = "MAX" if op.kind == "MaxPool" else "AVE"
    param: dict[str, Any] = dict(pool=pool)
    for letter, one in zip("hw", sides, strict=True):
        param |= {f"kernel_{letter}": one.kernel, f"stride_{letter}": one.stride, f"pad_{letter}": one.pad}
    counts = _count(sides, mode)
    y = layers.add("Pooling", [x], pooling_param=param | ({"round_mode": mode} if mode == "FLOOR" else {}))
    for axis, (one, count) in enumerate(zip(sides, counts, strict=True), 2):
        if count != one.out:
            y = layers.cut(y, axis, one.lead, one.lead + one.out)
    if pool == "MAX":
        return y
    factors = _areas(sides, counts) / np.maximum(1, np.outer(*(_counted(op, one) for one in sides)))
    if np.allclose(factors, 1, rtol=1e-7):
        return y
    return layers.frozen("Scale", [y], [factors], scale_param=dict(axis=2, num_axes=2))


def _areas(sides: list[PooledSide], counts: list[int]) -> np.ndarray:
    """Return what a layer divides the sums by."""
    lengths = []
    for one, count in zip(sides, counts, strict=True):
        axis = Axis(one.size, one.kernel, one.stride, one.pad, count)
        lengths.append(axis.length[one.lead : one.lead + one.out])
    return np.outer(*lengths)


def _counted(op: Op, one: PooledSide) -> np.ndarray:
    """Return how many values of each window count in the op's mean."""
    starts = np.arange(one.out) * one.stride - one.begin
    first, last = (-one.begin, one.size + one.end) if op.get("count_include_pad", 0) else (0, one.size)
    counted: np.ndarray = np.minimum(starts + one.kernel, last) - np.maximum(starts, first)
    return counted
