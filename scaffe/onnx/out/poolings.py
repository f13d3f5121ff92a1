"""Pooling and SPP, by Caffe's rule of sizes: padding at the end is what the last window needs."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from scaffe.blob import Shape
from scaffe.layers.pooling_axis import Axis
from scaffe.onnx.graph import Graph
from scaffe.onnx.writers import Blobs, Names, writes


@writes("Pooling")
def _pooling(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    param = layer.param.pooling_param
    windows = _windows(layer, bottom[0].shape, top[0].shape)
    if param.pool == param.MAX:
        return _maxima(g, names[0], windows, len(top))
    if param.pool == param.AVE:
        return [_means(g, names[0], windows)]
    return [_expected(g, names[0], windows)]


@writes("SPP")
def _pyramid(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    grids = zip(layer.pools, layer.pooled, strict=True)
    pooled = [(_pooling(g, pool, bottom, [blob], names)[0], blob) for pool, blob in grids]
    rows = [g.reshape(name, [blob.shape[0], prod(blob.shape[1:])]) for name, blob in pooled]
    return [g.op("Concat", *rows, axis=1)]


def _windows(layer: Any, shape: Shape, pooled: Shape) -> list[Axis]:
    """Return the windows along both axes."""
    kernel = layer.kernel or shape[2:]
    return [Axis(*one) for one in zip(shape[2:], kernel, layer.stride, layer.pad, pooled[2:], strict=True)]


def _window(windows: Sequence[Axis]) -> dict[str, list[int]]:
    """Return the attributes of an op for the windows along both axes."""
    ends = [max(0, (w.out - 1) * w.stride + w.kernel - w.size - w.pad) for w in windows]
    return dict(
        kernel_shape=[w.kernel for w in windows],
        strides=[w.stride for w in windows],
        pads=[*(w.pad for w in windows), *ends],
    )


def _maxima(g: Graph, x: str, windows: Sequence[Axis], tops: int) -> Names:
    if tops == 1:
        return [g.op("MaxPool", x, **_window(windows))]
    y, places = g.ops("MaxPool", 2, x, **_window(windows))
    in_picture = g.op("Mod", places, g.numbers(windows[0].size * windows[1].size))
    return [y, g.op("Cast", in_picture, to=g.onnx.TensorProto.FLOAT)]


def _means(g: Graph, x: str, windows: Sequence[Axis]) -> str:
    """Add a mean over windows that counts padding, but not what lies beyond: windows there are weighed again."""
    y = g.op("AveragePool", x, count_include_pad=1, **_window(windows))
    areas = np.outer(*(w.length for w in windows))
    full = prod(w.kernel for w in windows)
    return y if (areas == full).all() else g.op("Mul", y, g.constant(full / areas, "areas"))


def _expected(g: Graph, x: str, windows: Sequence[Axis]) -> str:
    """Add the sum of x^2 / the sum of x over each window, 0 where all x are 0."""
    squares, values = (
        g.op("AveragePool", one, count_include_pad=1, **_window(windows)) for one in (g.op("Mul", x, x), x)
    )
    return g.op("Div", squares, g.op("Add", values, g.constant(np.finfo(np.float32).tiny)))
