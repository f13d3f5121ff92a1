"""Add, Sub, Mul, Div, Sum, Max, Min and Mean, with ONNX's broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from scaffe.blob import Shape
from scaffe.onnx.grown_net import GrownNet
from scaffe.onnx.readers import Op, Unreadable, Value, reads


@reads("Add", "Sum")
def _add(layers: GrownNet, op: Op) -> str:
    return _folded(layers, op, add)


@reads("Mul")
def _mul(layers: GrownNet, op: Op) -> str:
    return _folded(layers, op, multiply)


@reads("Sub")
def _sub(layers: GrownNet, op: Op) -> str:
    a, b = _two(op)
    return add(layers, a, np.asarray(-b) if isinstance(b, np.ndarray) else layers.affine(b, -1))


@reads("Div")
def _div(layers: GrownNet, op: Op) -> str:
    a, b = _two(op)
    if isinstance(b, np.ndarray):
        return multiply(layers, a, np.asarray(1 / b.astype(np.float64)))
    return multiply(layers, a, layers.add("Power", [b], power_param=dict(power=-1)))


@reads("Max", "Min")
def _max(layers: GrownNet, op: Op) -> str:
    """Read the largest, or as -max(-a, -b) the smallest."""
    sign = 1 if op.kind == "Max" else -1
    blobs = [op.blob(layers, index) for index in range(len(op.inputs))]
    turned = [x if sign == 1 else layers.affine(x, -1) for x in blobs]
    shape = np.broadcast_shapes(*(layers.shape(x) for x in turned))
    spread = [layers.spread(x, shape) for x in turned]
    y = spread[0] if len(spread) == 1 else layers.add("Eltwise", spread, eltwise_param=dict(operation="MAX"))
    return y if sign == 1 else layers.affine(y, -1)


@reads("Mean")
def _mean(layers: GrownNet, op: Op) -> str:
    return layers.affine(_folded(layers, op, add), 1 / len(op.inputs))


def _two(op: Op) -> tuple[Value, Value]:
    a, b = op.inputs
    if a is None or b is None:
        raise Unreadable("an input is missing")
    return a, b


def _folded(layers: GrownNet, op: Op, combine: Callable[[GrownNet, Value, Value], str]) -> str:
    """Combine the inputs, those that are computed first, so that each step has one of these."""
    values = sorted((value for value in op.inputs if value is not None), key=lambda one: isinstance(one, np.ndarray))
    result = op.blob(layers, list(op.inputs).index(values[0])) if len(values) == 1 else values[0]
    for value in values[1:]:
        result = combine(layers, result, value)
    assert isinstance(result, str)
    return result


def add(layers: GrownNet, a: Value, b: Value) -> str:
    """Return a + b, of which at least one is a blob."""
    return _combined(layers, a, b, "Bias", "SUM", lambda x, value: layers.affine(x, shift=value))


def multiply(layers: GrownNet, a: Value, b: Value) -> str:
    """Return a b, of which at least one is a blob."""
    return _combined(layers, a, b, "Scale", "PROD", lambda x, value: layers.affine(x, scale=value))


def _combined(
    layers: GrownNet, a: Value, b: Value, kind: str, operation: str, by_number: Callable[[str, float], str]
) -> str:
    if isinstance(a, np.ndarray):
        a, b = b, a
    assert isinstance(a, str)
    if isinstance(b, np.ndarray):
        if b.size == 1 and b.ndim <= len(layers.shape(a)):
            return by_number(a, float(b.reshape(())))
        return _with_constant(layers, kind, a, b)
    if np.prod(layers.shape(b)) > np.prod(layers.shape(a)):
        a, b = b, a
    if layers.shape(a) != layers.shape(b) and (found := _with_operand(layers, kind, a, b)):
        return found
    shape = np.broadcast_shapes(layers.shape(a), layers.shape(b))
    return layers.add("Eltwise", [layers.spread(x, shape) for x in (a, b)], eltwise_param=dict(operation=operation))


def _run(shape: Shape, part: Shape) -> tuple[int, int] | None:
    """Return the axes, first and behind the last, on which `part`, of as many axes, is not 1; None for gaps in them."""
    given = [axis for axis, size in enumerate(part) if size != 1]
    if not given:
        return None
    first, stop = given[0], given[-1] + 1
    return (first, stop) if shape[first:stop] == part[first:stop] else None


def _with_constant(layers: GrownNet, kind: str, x: str, values: np.ndarray) -> str:
    """Add a Scale or Bias by a constant, over a run of axes."""
    shape = np.broadcast_shapes(layers.shape(x), values.shape)
    x = layers.spread(x, shape)
    full = values.reshape((1,) * (len(shape) - values.ndim) + values.shape)
    given = [axis for axis, size in enumerate(full.shape) if size != 1] or [len(shape) - 1]
    first, stop = given[0], given[-1] + 1
    full = np.broadcast_to(full, (*full.shape[:first], *shape[first:stop], *full.shape[stop:]))
    operand = np.ascontiguousarray(full, np.float32).reshape(shape[first:stop])
    field: dict[str, Any] = {f"{kind.lower()}_param": dict(axis=first, num_axes=stop - first)}
    return layers.frozen(kind, [x], [operand], **field)


def _with_operand(layers: GrownNet, kind: str, x: str, operand: str) -> str | None:
    """Add a Scale or Bias by another blob over a run of x's axes; None where it has no such shape."""
    shape, part = layers.shape(x), layers.shape(operand)
    full = (1,) * (len(shape) - len(part)) + part
    found = _run(shape, full)
    if found is None:
        return None
    first, stop = found
    if first == 1 and shape[0] == full[0] == 1 and len(part) == len(shape):  # a batch of 1, which may grow
        first = 0
    small = layers.reshape(operand, full[first:stop])
    field: dict[str, Any] = {f"{kind.lower()}_param": dict(axis=first)}
    return layers.add(kind, [x, small], **field)
