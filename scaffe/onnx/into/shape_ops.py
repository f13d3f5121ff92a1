"""Ops that cut, join, turn and reshape."""

from __future__ import annotations

from itertools import accumulate
from math import prod

import numpy as np

from scaffe.onnx.grown_net import GrownNet
from scaffe.onnx.readers import Op, Unreadable, reads


def axis_of(layers: GrownNet, x: str, axis: int) -> int:
    """Return an axis, counted from the first."""
    return axis % len(layers.shape(x))


@reads("Concat")
def _concat(layers: GrownNet, op: Op) -> str:
    blobs = [op.blob(layers, index) for index in range(len(op.inputs))]
    kept = [x for x in blobs if prod(layers.shape(x))] or blobs[:1]
    axis = axis_of(layers, blobs[0], op.get("axis", 1))
    return kept[0] if len(kept) == 1 else layers.add("Concat", kept, concat_param=dict(axis=axis))


@reads("Flatten")
def _flatten(layers: GrownNet, op: Op) -> str:
    x = op.blob(layers)
    shape = layers.shape(x)
    axis = op.get("axis", 1)
    axis += len(shape) if axis < 0 else 0
    if axis == 1 and len(shape) > 1:
        return layers.add("Flatten", [x])
    return layers.reshape(x, [prod(shape[:axis]), prod(shape[axis:])])


@reads("Expand")
def _expand(layers: GrownNet, op: Op) -> str:
    x = op.blob(layers)
    return layers.spread(x, np.broadcast_shapes(layers.shape(x), tuple(op.numbers(1, "shape") or ())))


@reads("Gather")
def _gather(layers: GrownNet, op: Op) -> str:
    """Read rows of a constant as an Embed, and some indices as Slices."""
    if isinstance(op.inputs[0], np.ndarray) and isinstance(op.inputs[1], str):
        return _embed(layers, op.inputs[0], op.inputs[1], op.get("axis", 0))
    x, found = op.blob(layers), op.needed(1)
    axis = axis_of(layers, x, op.get("axis", 0))
    shape = layers.shape(x)
    if not found.size or not (-shape[axis] <= found.min() and found.max() < shape[axis]):
        raise Unreadable(f"its indices are none, or beyond the {shape[axis]} of axis {axis}")
    indices = [int(index) % shape[axis] for index in found.reshape(-1)]
    if indices == list(range(indices[0], indices[0] + len(indices))):
        joined = layers.cut(x, axis, indices[0], indices[-1] + 1)
    else:
        parts = [layers.cut(x, axis, index, index + 1) for index in indices]
        joined = layers.add("Concat", parts, concat_param=dict(axis=axis))
    return layers.reshape(joined, [*shape[:axis], *found.shape, *shape[axis + 1 :]])


def _embed(layers: GrownNet, vectors: np.ndarray, indices: str, axis: int) -> str:
    if axis or vectors.ndim != 2:
        raise Unreadable("it takes other than rows of a matrix, which no layer does")
    param = dict(input_dim=vectors.shape[0], num_output=vectors.shape[1], bias_term=False)
    return layers.add("Embed", [indices], [vectors], embed_param=param)


@reads("Pad")
def _pad(layers: GrownNet, op: Op) -> str:
    x = op.blob(layers)
    shape, pads = layers.shape(x), op.numbers(1, "pads") or []
    if op.get("mode", "constant") != "constant":
        raise Unreadable(f"its mode is {op.get('mode')}, where layers can only add a constant")
    axes = [axis_of(layers, x, axis) for axis in op.numbers(3, "axes") or range(len(shape))]
    begins, ends = [0] * len(shape), [0] * len(shape)
    for axis, begin, end in zip(axes, pads, pads[len(axes) :], strict=False):
        begins[axis], ends[axis] = begin, end
    value = float(op.needed(2).reshape(())) if op.given(2) else op.get("value", 0.0)
    if max(*begins[:2], *ends[:2]) > 0:
        raise Unreadable("it adds samples or channels, which no layer does")
    for axis in range(min(2, len(shape))):
        x = layers.cut(x, axis, -begins[axis], shape[axis] + ends[axis])
    if not any((*begins[2:], *ends[2:])):
        return x
    padded = layers.pad(layers.affine(x, shift=-value) if value else x, begins[2:], ends[2:])
    return layers.affine(padded, shift=value) if value else padded


@reads("Reshape")
def _reshape(layers: GrownNet, op: Op) -> str:
    x = op.blob(layers)
    shape, wanted = layers.shape(x), op.numbers(1, "shape") or []
    if not op.get("allowzero", 0):
        wanted = [shape[axis] if size == 0 else size for axis, size in enumerate(wanted)]
    if -1 in wanted:
        known = -prod(wanted)
        wanted[wanted.index(-1)] = prod(shape) // known if known else 0
    return layers.reshape(x, wanted)


@reads("Slice")
def _slice(layers: GrownNet, op: Op) -> str:
    x = op.blob(layers)
    starts, ends = op.numbers(1, "starts") or [], op.numbers(2, "ends") or []
    axes, steps = op.numbers(3, "axes") or list(range(len(starts))), op.numbers(4, "steps") or [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        place = axis_of(layers, x, axis)
        if step != 1:
            raise Unreadable(f"its step is {step}, where a layer has 1")
        first, last, _ = slice(start, end).indices(layers.shape(x)[place])
        if last <= first:
            raise Unreadable(f"it keeps nothing of axis {place}, where a blob has a value at least")
        x = layers.cut(x, place, first, last)
    return x


@reads("Split")
def _split(layers: GrownNet, op: Op) -> list[str]:
    x = op.blob(layers)
    axis, count = axis_of(layers, x, op.get("axis", 0)), len(op.used)
    size = layers.shape(x)[axis]
    each = -(-size // count)
    sizes = op.numbers(1, "split") or [min(each, size - each * i) for i in range(count)]
    if min(sizes) < 1:
        raise Unreadable(f"its parts have {sizes} values, where a blob has one at least")
    if count == 1:
        return [x]
    points = list(accumulate(sizes))[:-1]
    return layers.add_tops("Slice", [x], count, slice_param=dict(axis=axis, slice_point=points))


@reads("Squeeze")
def _squeeze(layers: GrownNet, op: Op) -> str:
    x = op.blob(layers)
    shape = layers.shape(x)
    axes = op.numbers(1, "axes")
    gone = [axis for axis, n in enumerate(shape) if n == 1] if axes is None else [axis % len(shape) for axis in axes]
    return layers.reshape(x, [n for axis, n in enumerate(shape) if axis not in gone])


@reads("Tile")
def _tile(layers: GrownNet, op: Op) -> str:
    x = op.blob(layers)
    for axis, times in enumerate(op.numbers(1, "repeats") or []):
        x = layers.tile(x, axis, times)
    return x


@reads("Transpose")
def _transpose(layers: GrownNet, op: Op) -> str:
    x = op.blob(layers)
    return layers.permute(x, op.get("perm") or range(len(layers.shape(x)))[::-1])


@reads("Unsqueeze")
def _unsqueeze(layers: GrownNet, op: Op) -> str:
    x = op.blob(layers)
    shape, axes = list(layers.shape(x)), op.numbers(1, "axes") or []
    count = len(shape) + len(axes)
    for axis in sorted(axis % count for axis in axes):
        shape.insert(axis, 1)
    return layers.reshape(x, shape)
