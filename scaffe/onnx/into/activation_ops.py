"""Ops that are a function of each value."""

from __future__ import annotations

import numpy as np

from scaffe.onnx.grown_net import GrownNet
from scaffe.onnx.readers import Op, Unreadable, reads

SAME_NAME = {
    "Abs": "AbsVal", "Exp": "Exp", "HardSwish": "HardSwish", "Log": "Log", "Mish": "Mish", "Relu": "ReLU",
    "Sigmoid": "Sigmoid", "Softplus": "BNLL", "Tanh": "TanH",
}  # fmt: skip
FARTHEST = float(np.finfo(np.float32).max)


@reads(*SAME_NAME)
def _plain(layers: GrownNet, op: Op) -> str:
    return layers.add(SAME_NAME[op.kind], [op.blob(layers)])


@reads("Clip")
def _clip(layers: GrownNet, op: Op) -> str:
    bounds = []
    for index, (name, default) in enumerate((("min", -FARTHEST), ("max", FARTHEST)), 1):
        given = float(op.needed(index).reshape(())) if op.given(index) else op.get(name, default)
        bounds.append(min(max(given, -FARTHEST), FARTHEST))
    if bounds[0] > bounds[1]:  # all values are the maximum
        bounds[0] = bounds[1]
    return layers.add("Clip", [op.blob(layers)], clip_param=dict(min=bounds[0], max=bounds[1]))


@reads("Elu")
def _elu(layers: GrownNet, op: Op) -> str:
    return layers.add("ELU", [op.blob(layers)], elu_param=dict(alpha=op.get("alpha", 1.0)))


@reads("HardSigmoid")
def _hard_sigmoid(layers: GrownNet, op: Op) -> str:
    line = layers.affine(op.blob(layers), op.get("alpha", 0.2), op.get("beta", 0.5))
    return layers.add("Clip", [line], clip_param=dict(min=0, max=1))


@reads("LeakyRelu")
def _leaky_relu(layers: GrownNet, op: Op) -> str:
    return layers.add("ReLU", [op.blob(layers)], relu_param=dict(negative_slope=op.get("alpha", 0.01)))


@reads("Neg")
def _negative(layers: GrownNet, op: Op) -> str:
    return layers.affine(op.blob(layers), -1)


@reads("PRelu")
def _prelu(layers: GrownNet, op: Op) -> str:
    x, slopes = op.blob(layers), op.needed(1)
    shape = layers.shape(x)
    if slopes.size == 1:
        return layers.add("PReLU", [x], [slopes.reshape(())], prelu_param=dict(channel_shared=True))
    full = (1,) * (len(shape) - slopes.ndim) + slopes.shape
    if len(shape) < 2 or full != (1, shape[1], *(1,) * (len(shape) - 2)):
        raise Unreadable(f"its slopes have shape {slopes.shape}, where a layer has one for each channel of {shape}")
    return layers.add("PReLU", [x], [slopes.reshape(-1)])


@reads("Reciprocal", "Sqrt")
def _power(layers: GrownNet, op: Op) -> str:
    return layers.add("Power", [op.blob(layers)], power_param=dict(power=-1 if op.kind == "Reciprocal" else 0.5))


@reads("Pow")
def _pow(layers: GrownNet, op: Op) -> str:
    power = op.needed(1)
    if power.size != 1:
        raise Unreadable("its exponents differ, where a layer has one")
    return layers.add("Power", [op.blob(layers)], power_param=dict(power=float(power.reshape(()))))


@reads("Dropout")
def _dropout(layers: GrownNet, op: Op) -> str:
    ratio = float(op.needed(1).reshape(())) if op.given(1) else op.get("ratio", 0.5)
    if op.given(2) and op.needed(2).any():
        raise Unreadable("its training_mode is on; export the model for inference")
    if any(op.used[1:]):
        raise Unreadable("its mask is used, which a layer doesn't give")
    return layers.add("Dropout", [op.blob(layers)], dropout_param=dict(dropout_ratio=ratio))


@reads("Identity")
def _identity(layers: GrownNet, op: Op) -> str:
    return op.blob(layers)


@reads("Cast")
def _cast(layers: GrownNet, op: Op) -> str:
    if op.get("to") != 1:
        raise Unreadable("it casts to another type than float32, the only one of blobs")
    return op.blob(layers)
