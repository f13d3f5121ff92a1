"""Layers that cut, join, repeat, choose and reshape."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from scaffe.onnx.graph import Graph
from scaffe.onnx.writers import Blobs, Names, writes


@writes("ArgMax")
def _arg_max(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    """Write the largest values' indices, of equal values the highest first: those of the axis in reverse order."""
    x, shape = names[0], bottom[0].shape
    axis = 1 if layer.flat else layer.canonical_axis(layer.param.argmax_param.axis, bottom[0])
    if layer.flat:
        x = g.reshape(x, [shape[0], layer.count])
    ends = (g.numbers([one]) for one in (-1, -layer.count - 1, axis, -1))
    values, found = g.ops("TopK", 2, g.op("Slice", x, *ends), g.numbers([layer.top_k]), axis=axis)
    indices = g.op("Cast", g.op("Sub", g.numbers(layer.count - 1), found), to=g.onnx.TensorProto.FLOAT)
    if not layer.flat:
        return [values if layer.values else indices]
    rows = g.op("Concat", indices, values, axis=1) if layer.values else indices
    return [g.reshape(rows, top[0].shape)]


@writes("BatchReindex")
def _batch_reindex(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    return [g.op("Gather", names[0], g.op("Cast", names[1], to=g.onnx.TensorProto.INT64), axis=0)]


@writes("Concat")
def _concat(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    return [g.op("Concat", *names, axis=layer.axis)]


@writes("Crop")
def _crop(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    cut = [(axis, part.start, part.stop) for axis, part in enumerate(layer.part) if part.start is not None]
    axes, starts, ends = (g.numbers(numbers) for numbers in zip(*cut, strict=True))
    return [g.op("Slice", names[0], starts, ends, axes)]


@writes("DummyData")
def _dummy(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    if any(filler.type != "constant" for filler in layer.fillers):
        raise layer.error("draws random values, which an ONNX model can't have; give an Input layer in its place")
    pairs = zip(top, layer.fillers, strict=True)
    return [g.constant(np.full(blob.shape, filler.value, np.float32), "values") for blob, filler in pairs]


@writes("Filter")
def _filter(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    selector = g.op("Cast", g.reshape(names[-1], [bottom[-1].shape[0]]), to=g.onnx.TensorProto.BOOL)
    return [g.op("Compress", name, selector, axis=0) for name in names[:-1]]


@writes("Flatten", "Reshape")
def _reshape(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    return [g.reshape(names[0], top[0].shape)]


@writes("Parameter")
def _parameter(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    return [g.constant(layer.blobs[0].data, "values")]


@writes("Reduction")
def _reduction(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    param = layer.param.reduction_param
    axes = list(range(layer.canonical_axis(param.axis, bottom[0]), len(bottom[0].shape)))
    if param.operation == param.SUM:
        y = g.op("ReduceSum", names[0], g.numbers(axes), keepdims=0)
    else:
        kinds = {param.ASUM: "ReduceL1", param.SUMSQ: "ReduceSumSquare", param.MEAN: "ReduceMean"}
        y = g.op(kinds[param.operation], names[0], axes=axes, keepdims=0)
    return [g.affine(y, param.coeff)]


@writes("Silence")
def _silence(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    return []


@writes("Slice")
def _slice(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    lengths = [stop - start for start, stop in pairwise(layer.ends)]
    return g.ops("Split", len(top), names[0], g.numbers(lengths), axis=layer.axis)


@writes("Split")
def _split(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    return [names[0]] * len(top)


@writes("Tile")
def _tile(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    repeats = [1] * len(bottom[0].shape)
    repeats[layer.canonical_axis(layer.param.tile_param.axis, bottom[0])] = layer.tiles
    return [g.op("Tile", names[0], g.numbers(repeats))]
