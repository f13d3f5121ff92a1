"""Pictures of nets by pycaffe's names: caffe.draw, over scaffe.tools.draw.

A layer that computes in place is a line in the box of the layer before it; in pycaffe it has a box of its own.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any

from scaffe.errors import NetError, ScaffeError
from scaffe.files.atomic import write_atomically
from scaffe.net.graph import filter_layers
from scaffe.proto import LayerParameter, NetParameter, NetState, Phase, PoolingParameter
from scaffe.tools import draw

VERTICAL = ("TB", "BT")
MULTIPLIED = ("Convolution", "Deconvolution", "InnerProduct")  # types whose multipliers get_layer_lr_mult knows
NOTHING = '""'  # an empty label in graphviz's language
TEXT = ("raw", *draw.SOURCE_SUFFIXES)  # formats that are graphviz's language, and need no program


class MultiplierError(NetError, ValueError):
    """A layer without multipliers of the learning rate for weights and bias; also a ValueError, as in pycaffe."""


def get_pooling_types_dict() -> dict[int, str]:
    """Return the names of Pooling's methods by their numbers."""
    return {number: name for name, number in PoolingParameter.PoolMethod.items()}


def get_edge_label(layer: LayerParameter) -> str:
    """Return what the edges to a layer's tops say: its batch or its number of outputs, '""' for other types."""
    if layer.type == "Data":
        return f"Batch {layer.data_param.batch_size}"
    if layer.type in ("Convolution", "Deconvolution"):
        return str(layer.convolution_param.num_output)
    return str(layer.inner_product_param.num_output) if layer.type == "InnerProduct" else NOTHING


def get_layer_lr_mult(layer: LayerParameter) -> tuple[float, float]:
    """Return a layer's multipliers of the learning rate, of weights and of bias; 1 is the default.

    Raise MultiplierError for types other than Convolution, Deconvolution and InnerProduct, or more multipliers.
    """
    if layer.type not in MULTIPLIED:
        raise MultiplierError(f"{layer.type} layers do not have a learning rate multiplier")
    if len(layer.param) > 2:
        raise MultiplierError(f"layer '{layer.name}': expected multipliers of weights and bias, got {len(layer.param)}")
    weights, bias = ([param.lr_mult for param in layer.param] + [1.0, 1.0])[:2]
    return weights, bias


def get_layer_label(layer: LayerParameter, rankdir: str, display_lrm: bool = False) -> str:
    """Return the text of a layer's box, quoted: on one line in a vertical picture, else on several."""
    lines = [draw.title(layer), *draw.details(layer), *(draw.multipliers(layer) if display_lrm else [])]
    return f'"{(" " if rankdir in VERTICAL else chr(92) + "n").join(lines)}"'


def choose_color_by_layertype(layertype: str) -> str:
    """Return the colour of the boxes of a layer type, as #RRGGBB."""
    return draw.colour(layertype)


def get_pydot_graph(
    caffe_net: NetParameter, rankdir: str, label_edges: bool = True, phase: int | None = None, display_lrm: bool = False
) -> Any:
    """Return a net's drawing as a pydot.Dot. The arguments are those of `draw_net`; `label_edges` False omits labels.

    Raise ScaffeError if pydot is not installed.
    """
    try:
        import pydot
    except ImportError:
        raise ScaffeError("get_pydot_graph needs the package pydot: pip install 'scaffe[draw]'") from None
    drawing = _drawing(caffe_net, label_edges, phase, display_lrm)
    graph = pydot.Dot(_quoted(caffe_net.name or "net"), graph_type="digraph", rankdir=rankdir)
    graph.set_node_defaults(**draw.NODE_STYLE)
    graph.set_edge_defaults(**draw.EDGE_STYLE)
    for key, (lines, colour) in drawing.boxes.items():
        graph.add_node(pydot.Node(_quoted(key), label=_quoted("\n".join(lines)), fillcolor=colour, **draw.LAYER_STYLE))
    for key, blob in drawing.blobs.items():
        graph.add_node(pydot.Node(_quoted(key), label=_quoted(blob), **draw.BLOB_STYLE))
    for tail, head, label in drawing.edges:
        graph.add_edge(pydot.Edge(_quoted(tail), _quoted(head), label=_quoted(label)))
    return graph


def _quoted(text: str) -> str:
    """Return a text in graphviz's language."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _drawing(net: NetParameter, label_edges: bool, phase: int | None, display_lrm: bool) -> draw.Drawing:
    """Return the drawing of a phase's layers, None for all. A blob that two of them make has the labels of both."""
    name = "ALL" if phase is None else Phase.Name(phase)
    layers = net.layer if phase is None else filter_layers(net, NetState(phase=name)).layer
    found: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for layer in layers:
        label = get_edge_label(layer) if label_edges else NOTHING
        for top in layer.top if label != NOTHING else ():
            found[top][label] = None
    return draw.diagram(net, name, {top: " or ".join(labels) for top, labels in found.items()}, display_lrm)


def draw_net(
    caffe_net: NetParameter, rankdir: str, ext: str = "png", phase: int | None = None, display_lrm: bool = False
) -> bytes:
    """Return the picture of a net, in a format of graphviz; "raw" is its language.

    `rankdir` is LR, RL, TB or BT. `phase` draws that phase's layers alone; `display_lrm` adds the multipliers of the
    learning rate. Raise ScaffeError if graphviz is missing or has no such format.
    """
    graph = draw.source(_drawing(caffe_net, True, phase, display_lrm), caffe_net.name, rankdir)
    return graph.source.encode() if ext in TEXT else draw.render(graph, ext)


def draw_net_to_file(
    caffe_net: NetParameter,
    filename: str | os.PathLike[str],
    rankdir: str = "LR",
    phase: int | None = None,
    display_lrm: bool = False,
) -> None:
    """Write the picture of a net to a file, in the format of its suffix. See `draw_net`.

    The file appears complete or not at all. Raise ScaffeError if it can't be written.
    """
    ext = os.fspath(filename).rpartition(".")[2]
    write_atomically(filename, draw_net(caffe_net, rankdir, ext, phase, display_lrm))
