"""BatchNorm, LRN, MVN and Softmax."""

from __future__ import annotations

from math import prod
from typing import Any

from scaffe.onnx.graph import Graph
from scaffe.onnx.writers import Blobs, Names, writes, writes_values


@writes("BatchNorm")
def _batch_norm(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    """Write y = (x - mean) / sqrt(variance + eps), by the running sums, or by the batch where the layer says so."""
    shape, x = bottom[0].shape, names[0]
    if not layer.use_sums:
        return [normalised(g, x, [axis for axis in range(len(shape)) if axis != 1 or len(shape) == 1], layer.eps)]
    mean, variance = (g.constant(values.copy(), what) for values, what in _statistics(layer))
    if len(shape) == 1:
        deviation = g.op("Sqrt", g.affine(variance, shift=layer.eps))
        return [g.op("Div", g.op("Sub", x, mean), deviation)]
    ones, zeros = (g.constant([float(value)] * shape[1], what) for value, what in ((1, "ones"), (0, "zeros")))
    return [g.op("BatchNormalization", x, ones, zeros, mean, variance, epsilon=layer.eps)]


def _statistics(layer: Any) -> Any:
    return zip(layer.global_statistics(), ("mean", "variance"), strict=True)


def normalised(g: Graph, x: str, axes: list[int], eps: float) -> str:
    """Return (x - mean) / sqrt(variance + eps) over axes."""
    centred = g.op("Sub", x, g.mean(x, axes))
    variance = g.mean(g.op("Mul", centred, centred), axes)
    return g.op("Div", centred, g.op("Sqrt", g.affine(variance, shift=eps)))


@writes_values("LRN")
def _lrn(g: Graph, layer: Any, x: str) -> str:
    param = layer.param.lrn_param
    size, reach = param.local_size, layer.reach
    if len(layer.axes) == 1:
        return g.op("LRN", x, size=size, alpha=param.alpha, beta=param.beta, bias=param.k)
    window = dict(kernel_shape=[size] * 2, pads=[reach] * 4, count_include_pad=1)
    scale = g.affine(g.op("AveragePool", g.op("Mul", x, x), **window), param.alpha, 1)
    return g.op("Mul", x, g.op("Pow", scale, g.constant(-param.beta)))


@writes("MVN")
def _mvn(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    x, shape = names[0], bottom[0].shape
    rows = g.reshape(x, [prod(shape[: 1 if layer.across else 2]), layer.view[1]])
    y = g.op("Sub", rows, g.mean(rows, [1]))
    if layer.scales:
        deviation = g.op("Sqrt", g.mean(g.op("Mul", y, y), [1]))
        y = g.op("Div", y, g.affine(deviation, shift=layer.eps))
    return [g.reshape(y, shape)]


@writes("Softmax")
def _softmax(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    axis = layer.canonical_axis(layer.param.softmax_param.axis, bottom[0])
    return [g.op("Softmax", names[0], axis=axis)]
