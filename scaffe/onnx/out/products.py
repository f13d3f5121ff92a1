"""InnerProduct, Embed, Scale, Bias and Eltwise."""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Any

from scaffe.onnx.graph import Graph
from scaffe.onnx.writers import Blobs, Names, writes


@writes("InnerProduct")
def _inner_product(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    axis = layer.canonical_axis(layer.param.inner_product_param.axis, bottom[0])
    x, shape = names[0], bottom[0].shape
    if (len(shape), axis) != (2, 1):
        x = g.reshape(x, [prod(shape[:axis]), layer.inputs])
    parameters = [g.constant(blob.data, what) for blob, what in zip(layer.blobs, ("weights", "bias"), strict=False)]
    y = g.op("Gemm", x, *parameters, transB=int(not layer.transpose))
    return [y if len(top[0].shape) == 2 else g.reshape(y, top[0].shape)]


@writes("Embed")
def _embed(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    indices = g.op("Cast", names[0], to=g.onnx.TensorProto.INT64)
    rows = g.op("Gather", g.constant(layer.blobs[0].data, "vectors"), indices)
    return [g.op("Add", rows, g.constant(layer.blobs[1].data, "bias")) if layer.bias_term else rows]


@writes("Scale")
def _scale(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    factor = _operand(g, layer, bottom, names, layer.param.scale_param.axis)
    y = g.op("Mul", names[0], factor)
    if layer.bias:
        y = g.op("Add", y, _spread(g, layer, layer.bias, bottom[0], layer.param.scale_param.axis))
    return [y]


@writes("Bias")
def _bias(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    return [g.op("Add", names[0], _operand(g, layer, bottom, names, layer.param.bias_param.axis))]


def _operand(g: Graph, layer: Any, bottom: Blobs, names: Names, axis: int) -> str:
    """Return the value of the second bottom, or of the parameter, which broadcasts over the first bottom."""
    if len(bottom) == 1:
        return _spread(g, layer, layer.blobs[0], bottom[0], axis)
    behind = _axes_behind(layer, bottom[1], bottom[0], axis)
    return g.op("Unsqueeze", names[1], g.numbers([-1 - i for i in range(behind)])) if behind else names[1]


def _spread(g: Graph, layer: Any, blob: Any, x: Any, axis: int) -> str:
    return g.constant(blob.data.reshape(*blob.shape, *(1,) * _axes_behind(layer, blob, x, axis)), "operand")


def _axes_behind(layer: Any, operand: Any, x: Any, axis: int) -> int:
    """Return the number of x's axes behind those of the operand."""
    return len(x.shape) - layer.canonical_axis(axis, x) - len(operand.shape) if operand.shape else 0


@writes("Eltwise")
def _eltwise(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    param = layer.param.eltwise_param
    if param.operation == param.MAX:
        return [g.op("Max", *names)]
    if param.operation == param.PROD:
        return [reduce(lambda a, b: g.op("Mul", a, b), names)]
    terms = [g.affine(x, coeff) for x, coeff in zip(names, layer.coeffs or [1] * len(names), strict=True)]
    return [reduce(lambda a, b: g.op("Add", a, b), terms)]
