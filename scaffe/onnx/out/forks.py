"""Layers of Caffe's forks."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from scaffe.onnx.graph import Graph
from scaffe.onnx.out.activations import softplus
from scaffe.onnx.out.normalisations import normalised
from scaffe.onnx.writers import Blobs, Names, writes, writes_values

MOST = 6.0  # of ReLU6


@writes("Axpy")
def _axpy(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    channels = [*bottom[1].shape[:2], *(1,) * (len(bottom[1].shape) - 2)]
    return [g.op("Add", g.op("Mul", g.reshape(names[0], channels), names[1]), names[2])]


@writes("BN")
def _bn(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    inner = (1,) * (len(bottom[0].shape) - 2)
    scale, shift, *stored = (blob.data.reshape(-1, *inner) for blob in layer.blobs)
    x = names[0]
    if layer.fixed:
        deviation = np.sqrt(stored[1] + np.float32(layer.eps))
        x = g.op("Div", g.op("Sub", x, g.constant(stored[0], "mean")), g.constant(deviation, "deviation"))
    elif not layer.affine:
        axes = [axis for axis in range(len(bottom[0].shape)) if axis != 1]
        x = normalised(g, x, axes, layer.eps)
    return [g.op("Add", g.op("Mul", x, g.constant(scale, "scale")), g.constant(shift, "shift"))]


@writes_values("CReLU")
def _crelu(g: Graph, layer: Any, x: str) -> str:
    return g.op("Concat", g.op("Relu", x), g.op("Relu", g.op("Neg", x)), axis=1)


@writes_values("HardSwish")
def _hard_swish(g: Graph, layer: Any, x: str) -> str:
    return g.op("HardSwish", x)


@writes_values("Interp")
def _interp(g: Graph, layer: Any, x: str) -> str:
    """Write two products: a row of weights for each pixel of the top."""
    rows, columns = (np.ascontiguousarray(one, np.float32) for one in (layer.rows, layer.columns.T))
    return g.op("MatMul", g.constant(rows, "rows"), g.op("MatMul", x, g.constant(columns, "columns")))


@writes_values("Mish")
def _mish(g: Graph, layer: Any, x: str) -> str:
    return g.op("Mul", x, g.op("Tanh", softplus(g, x)))


@writes("L2Normalization", "Normalize")
def _normalize(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    axes = list(range(1, len(bottom[0].shape))) if layer.across_spatial else [1]
    squares = g.op("ReduceSumSquare", names[0], axes=axes, keepdims=1)
    y = g.op("Div", names[0], g.op("Sqrt", g.affine(squares, shift=layer.eps)))
    if not layer.blobs:
        return [y]
    scale = layer.blobs[0].data
    inner = (1,) * (len(bottom[0].shape) - 2)
    return [g.op("Mul", y, g.constant(scale if layer.shared else scale.reshape(-1, *inner), "scale"))]


@writes_values("Permute")
def _permute(g: Graph, layer: Any, x: str) -> str:
    return g.op("Transpose", x, perm=list(layer.order))


@writes_values("ReLU6")
def _relu6(g: Graph, layer: Any, x: str) -> str:
    if not layer.slope:
        return g.op("Clip", x, g.constant(0), g.constant(MOST))
    return g.op("Min", g.op("LeakyRelu", x, alpha=layer.slope), g.constant(MOST))


@writes("Reorg")
def _reorg(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    n, c, h, s, w, _ = layer.fine
    before, perm = ((n, s, s, c, h, w), [0, 3, 4, 1, 5, 2]) if layer.reverse else (layer.fine, [0, 3, 5, 1, 2, 4])
    return [g.reshape(g.op("Transpose", g.reshape(names[0], before), perm=perm), top[0].shape)]


@writes("ShuffleChannel")
def _shuffle(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    shape = bottom[0].shape
    split = g.reshape(names[0], [shape[0], layer.group, shape[1] // layer.group, prod(shape[2:])])
    return [g.reshape(g.op("Transpose", split, perm=[0, 2, 1, 3]), shape)]
