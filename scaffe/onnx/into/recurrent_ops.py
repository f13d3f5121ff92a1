"""LSTM."""

from __future__ import annotations

import numpy as np

from scaffe.onnx.grown_net import GrownNet
from scaffe.onnx.readers import Op, Unreadable, reads

GATES = (0, 2, 1, 3)  # Caffe's i, f, o, g in ONNX's i, o, f, c
ACTIVATIONS = ["Sigmoid", "Tanh", "Tanh"]
WAYS = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}  # whether they go backward


@reads("LSTM")
def _lstm(layers: GrownNet, op: Op) -> list[str]:
    x, weights, batch_first = op.blob(layers), op.needed(1), op.get("layout", 0)
    _check(layers, op, x)
    x = layers.permute(x, (1, 0, 2)) if batch_first else x
    found = [_direction(layers, op, x, weights, i, way) for i, way in enumerate(WAYS[op.get("direction", "forward")])]
    y, *states = [
        parts[0] if len(parts) == 1 else layers.add("Concat", parts, concat_param=dict(axis=axis))
        for parts, axis in zip(zip(*found, strict=True), (1, 0, 0), strict=True)
    ]
    if not batch_first:
        return [y, *states]
    return [layers.permute(y, (2, 0, 1, 3)), *(layers.permute(state, (1, 0, 2)) for state in states)]


def _check(layers: GrownNet, op: Op, x: str) -> None:
    """Raise Unreadable for what a layer can't do."""
    if op.given(7) and op.needed(7).any():
        raise Unreadable("it has peepholes, which a layer has not")
    if op.given(4) and (op.needed(4) != layers.shape(x)[1 if op.get("layout", 0) else 0]).any():
        raise Unreadable("its sequences have lengths of their own")
    used = [one.decode() if isinstance(one, bytes) else one for one in op.get("activations") or ACTIVATIONS]
    if used != ACTIVATIONS * (len(used) // 3):
        raise Unreadable("its activations are not Sigmoid, Tanh, Tanh")
    if op.get("clip") is not None or op.get("input_forget", 0):
        raise Unreadable("it has clip or input_forget, which a layer has not")


def _direction(layers: GrownNet, op: Op, x: str, weights: np.ndarray, way: int, is_reversed: bool) -> list[str]:
    """Return Y (T x 1 x N x H), Y_h and Y_c (1 x N x H) of a direction."""
    size = weights.shape[1] // 4
    time, rows, _ = layers.shape(x)
    bias = op.needed(3)[way].reshape(2, -1).sum(0) if op.given(3) else np.zeros(4 * size)
    parameters = [_caffes(one) for one in (weights[way], bias, op.needed(2)[way])]
    states = [_initial(layers, op, x, index, way, size) for index in (5, 6)]
    y, hidden, cell = layers.add_tops(
        "LSTM", [x, _ones(layers, x), *states], 3, parameters, propagate_down=[True, False, True, True],
        recurrent_param=dict(num_output=size, expose_hidden=True, reverse=is_reversed),
    )  # fmt: skip
    return [layers.reshape(y, (time, 1, rows, size)), hidden, cell]


def _caffes(values: np.ndarray) -> np.ndarray:
    """Return values of the gates in Caffe's order."""
    parts = np.split(values, 4)
    return np.concatenate([parts[gate] for gate in GATES])


def _ones(layers: GrownNet, x: str) -> str:
    """Return cont (T x N): all sequences go on from the initial state."""
    sums = layers.add("Reduction", [x], reduction_param=dict(axis=2))
    return layers.add("Power", [sums], power_param=dict(power=0))


def _initial(layers: GrownNet, op: Op, x: str, index: int, way: int, size: int) -> str:
    """Return an initial state (1 x N x H), zeros where there is none."""
    value = op.inputs[index] if op.given(index) else None
    if isinstance(value, np.ndarray) and value.any():
        whole = np.swapaxes(value, 0, 1) if op.get("layout", 0) else value
        return layers.parameter(whole[way : way + 1])
    if isinstance(value, str):
        return layers.cut(layers.permute(value, (1, 0, 2)) if op.get("layout", 0) else value, 0, way, way + 1)
    first = layers.cut(x, 0, 0, 1)
    zeros = np.zeros((size, layers.shape(x)[2]), np.float32)
    param = dict(num_output=size, bias_term=False, axis=2)
    return layers.frozen("InnerProduct", [first], [zeros], inner_product_param=param)
