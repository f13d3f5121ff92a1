"""Layers that are a function of each value."""

from __future__ import annotations

from typing import Any

from scaffe.onnx.graph import Graph
from scaffe.onnx.writers import Blobs, Names, writes, writes_values


@writes_values("AbsVal")
def _abs(g: Graph, layer: Any, x: str) -> str:
    return g.op("Abs", x)


@writes_values("BNLL")
def _bnll(g: Graph, layer: Any, x: str) -> str:
    return softplus(g, x)


def softplus(g: Graph, x: str) -> str:
    """Return max(x, 0) + log(1 + exp(-|x|)): some runtimes' Softplus overflows."""
    return g.op("Add", g.op("Relu", x), g.op("Softplus", g.op("Neg", g.op("Abs", x))))


@writes_values("Clip")
def _clip(g: Graph, layer: Any, x: str) -> str:
    param = layer.param.clip_param
    return g.op("Clip", x, g.constant(param.min), g.constant(param.max))


@writes_values("Dropout")
def _same(g: Graph, layer: Any, x: str) -> str:
    return x


@writes_values("ELU")
def _elu(g: Graph, layer: Any, x: str) -> str:
    return g.op("Elu", x, alpha=layer.param.elu_param.alpha)


@writes_values("Exp")
def _exp(g: Graph, layer: Any, x: str) -> str:
    return g.op("Exp", g.affine(x, layer.rate, layer.shift))


@writes_values("Log")
def _log(g: Graph, layer: Any, x: str) -> str:
    return g.affine(g.op("Log", g.affine(x, layer.scale, layer.shift)), layer.per_e)


@writes_values("Power")
def _power(g: Graph, layer: Any, x: str) -> str:
    if not layer.power:
        return g.affine(g.op("Mul", x, g.constant(0)), 1, 1)
    base = g.affine(x, layer.scale, layer.shift)
    return base if layer.power == 1 else g.op("Pow", base, g.constant(layer.power))


@writes("PReLU")
def _prelu(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    slopes = layer.blobs[0].data
    inner = (1,) * (len(bottom[0].shape) - 2)
    per_channel = slopes.reshape(-1, *inner) if slopes.ndim else slopes
    return [g.op("PRelu", names[0], g.constant(per_channel, "slopes"))]


@writes_values("ReLU")
def _relu(g: Graph, layer: Any, x: str) -> str:
    slope = layer.param.relu_param.negative_slope
    return g.op("LeakyRelu", x, alpha=slope) if slope else g.op("Relu", x)


@writes_values("Sigmoid")
def _sigmoid(g: Graph, layer: Any, x: str) -> str:
    return g.op("Sigmoid", x)


@writes_values("Swish")
def _swish(g: Graph, layer: Any, x: str) -> str:
    return g.op("Mul", x, g.op("Sigmoid", g.affine(x, layer.param.swish_param.beta)))


@writes_values("TanH")
def _tanh(g: Graph, layer: Any, x: str) -> str:
    return g.op("Tanh", x)


@writes_values("Threshold")
def _threshold(g: Graph, layer: Any, x: str) -> str:
    above = g.op("Greater", x, g.constant(layer.param.threshold_param.threshold))
    return g.op("Cast", above, to=1)
