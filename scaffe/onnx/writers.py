"""Writers: the functions that write layers as ONNX ops, by layer type."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scaffe.blob import Blob
from scaffe.layers.layer import Layer
from scaffe.onnx.graph import Graph

Blobs = Sequence[Blob]
Names = Sequence[str]

# A writer adds a layer's ops to a graph. Arguments: the graph, the layer of a built net, its bottoms and tops, and the
# names of the bottoms' values. It returns the names of the tops' values.
Writer = Callable[[Graph, Layer, Blobs, Blobs, Names], Names]
Written = Callable[[Graph, Layer, str], str]

_writers: dict[str, Writer] = {}  # by layer type


def writes(*types: str) -> Callable[[Writer], Writer]:
    """Register the decorated function as the writer of layer types."""

    def register(writer: Writer) -> Writer:
        _writers.update(dict.fromkeys(types, writer))
        return writer

    return register


def writes_values(*types: str) -> Callable[[Written], Written]:
    """Register a function of a graph, a layer and its only bottom's value that returns its only top's value."""

    def register(written: Written) -> Written:
        writes(*types)(lambda g, layer, bottom, top, names: [written(g, layer, names[0])])
        return written

    return register


def writers() -> dict[str, Writer]:
    """Return the writers by layer type."""
    return dict(_writers)
