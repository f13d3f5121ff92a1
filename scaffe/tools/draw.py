"""Pictures of nets, as Caffe's draw_net.py draws them, by graphviz.

`diagram` returns boxes and edges as plain lists, `source` converts them to graphviz's language, and `draw_net`
writes a file.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scaffe.compute import Compute
from scaffe.context import TEST, TRAIN
from scaffe.errors import ScaffeError
from scaffe.files.atomic import write_atomically
from scaffe.monitor.log import log
from scaffe.net.graph import filter_layers
from scaffe.net.net import Net
from scaffe.parallel.world import USER_ERRORS
from scaffe.proto import LayerParameter, NetParameter, NetState, Phase, PoolingParameter
from scaffe.proto.files import read_net

PHASES = {"TRAIN": (TRAIN,), "TEST": (TEST,), "ALL": (TRAIN, TEST)}
RANKDIRS = ("TB", "LR", "BT", "RL")
SOURCE_SUFFIXES = ("dot", "gv")
PICTURE_SUFFIXES = ("png", "svg", "pdf", "jpg")

BLOB_STYLE: dict[str, Any] = {"shape": "octagon", "fillcolor": "#E0E0E0", "style": "filled"}
LAYER_STYLE: dict[str, Any] = {"shape": "box", "style": "filled"}
NODE_STYLE: dict[str, Any] = {"fontname": "Helvetica"}
EDGE_STYLE: dict[str, Any] = {"fontname": "Helvetica", "fontsize": "10"}
WINDOWED, POOLED, DENSE, LOSS, SOURCE, OTHER = "#FF8080", "#FFB347", "#CC99FF", "#F4E04D", "#9FD8CB", "#8FB4F0"
DENSE_FIELDS = {
    "InnerProduct": "inner_product_param",
    "Embed": "embed_param",
    "LSTM": "recurrent_param",
    "RNN": "recurrent_param",
}
COLOURS = {
    **dict.fromkeys(("Convolution", "Deconvolution", "Im2col"), WINDOWED),
    **dict.fromkeys(("Pooling", "SPP"), POOLED),
    **dict.fromkeys(DENSE_FIELDS, DENSE),
    **dict.fromkeys(("Input", "DummyData", "Data", "HDF5Data", "ImageData", "MemoryData", "WindowData"), SOURCE),
}


@dataclass
class Drawing:
    """The content of a picture.

    - `boxes`: by id, the lines of text and the colour of each layer's box;
    - `blobs`: by id, the blobs' names;
    - `edges`: (id of the tail, id of the head, label).
    """

    boxes: dict[str, tuple[list[str], str]] = field(default_factory=dict)
    blobs: dict[str, str] = field(default_factory=dict)
    edges: list[tuple[str, str, str]] = field(default_factory=list)


def draw_net(
    model: str | os.PathLike[str],
    out: str | os.PathLike[str],
    rankdir: str = "TB",
    phase: str = "ALL",
    display_lrm: bool = False,
) -> None:
    """Draw the net of a prototxt file to `out`, in the format that the suffix of `out` names.

    `phase` "TRAIN" or "TEST" draws that phase's layers, "ALL" all of them; `rankdir` is one of RANKDIRS. `display_lrm`
    adds the parameters' multipliers of the learning rate. The file appears complete or not at all. Raise ScaffeError
    for an unknown format, if graphviz is missing, or if the file can't be written.
    """
    suffix = os.path.splitext(os.fspath(out))[1].lstrip(".").lower()
    if suffix not in SOURCE_SUFFIXES + PICTURE_SUFFIXES:
        known = " ".join(f".{one}" for one in PICTURE_SUFFIXES + SOURCE_SUFFIXES)
        raise ScaffeError(f"{out}: unknown format; known: {known}")
    net = read_net(model)
    graph = source(diagram(net, phase, shapes(net, phase), display_lrm), net.name, rankdir)
    write_atomically(out, graph.source.encode() if suffix in SOURCE_SUFFIXES else render(graph, suffix))


def shapes(net: NetParameter, phase: str) -> dict[str, str]:
    """Return the blobs' shapes as text, by name: "64 x 10", or "64 x 10 or 100 x 10" if the phases differ.

    If the net of a phase can't be built, log a warning and leave its shapes out.
    """
    found: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for one in PHASES[phase]:
        try:
            built = Net(net, one, compute=Compute("reference"))
        except USER_ERRORS as error:
            log.warning(
                "The shapes of phase %s are not drawn, since its net can't be built: %s", Phase.Name(one), error
            )
            continue
        for name, blob in built.blobs.items():
            found[name][" x ".join(map(str, blob.shape)) or "1"] = None
        built.close()
    return {name: " or ".join(texts) for name, texts in found.items()}


def diagram(
    net: NetParameter, phase: str = "ALL", shapes: Mapping[str, str] | None = None, display_lrm: bool = False
) -> Drawing:
    """Return the drawing of a net; `shapes`, by blob name, label the edges to the blobs.

    A layer that computes in place on a single blob is a line in the box of the layer before it, so that the picture
    has no cycles.
    """
    layers = net.layer if phase == "ALL" else filter_layers(net, NetState(phase=phase)).layer
    shapes, drawing = shapes or {}, Drawing()
    makers: dict[str, str] = {}  # the box of the layer that produces each blob
    for i, layer in enumerate(layers):
        host = makers.get(layer.bottom[0]) if list(layer.bottom) == list(layer.top) and len(layer.top) == 1 else None
        if host:
            drawing.boxes[host][0].append(f"+ {title(layer)}")
            continue
        box = f"layer {i}"
        lines = [title(layer), *details(layer), *(multipliers(layer) if display_lrm else []), *_rule(layer, phase)]
        drawing.boxes[box] = lines, colour(layer.type)
        drawing.edges += [(_blob(drawing, name), box, "") for name in layer.bottom]
        drawing.edges += [(box, _blob(drawing, name), shapes.get(name, "")) for name in layer.top]
        makers.update(dict.fromkeys(layer.top, box))
    return drawing


def _blob(drawing: Drawing, name: str) -> str:
    drawing.blobs[f"blob {name}"] = name
    return f"blob {name}"


def title(layer: LayerParameter) -> str:
    """Return the title of a layer's box: its name and type, for Pooling with the method."""
    method = ""
    if layer.type == "Pooling":
        method = f"{PoolingParameter.PoolMethod.Name(layer.pooling_param.pool)} "
    return f"{layer.name} ({method}{layer.type})"


def details(layer: LayerParameter) -> list[str]:
    """Return the lines below the title of a layer's box: its window, groups and number of outputs."""
    if layer.type in ("Convolution", "Deconvolution", "Im2col"):
        p = layer.convolution_param
        more = [f"outputs {p.num_output}"] if layer.type != "Im2col" else []
        more += [f"groups {p.group}"] if p.group != 1 else []
        more += [f"dilation {_joined(p.dilation)}"] if any(d != 1 for d in p.dilation) else []
        return [_window(p), *more]
    if layer.type == "Pooling":
        return ["global"] if layer.pooling_param.global_pooling else [_window(layer.pooling_param)]
    if layer.type in DENSE_FIELDS:
        return [f"outputs {getattr(layer, DENSE_FIELDS[layer.type]).num_output}"]
    return []


def multipliers(layer: LayerParameter) -> list[str]:
    """Return a line with the multipliers of the learning rate of a layer's parameters, if the layer has some."""
    rates = [f"{param.lr_mult:g}" for param in layer.param]
    if not rates and layer.type in ("Convolution", "Deconvolution", *DENSE_FIELDS):
        rates = ["1"]
    return [f"lr mult {', '.join(rates)}"] if rates else []


def _rule(layer: LayerParameter, phase: str) -> list[str]:
    """Return a line with the layer's phase if it has one and both phases are drawn."""
    only = [Phase.Name(rule.phase) for rule in layer.include if rule.HasField("phase")]
    return [f"{' '.join(only)} only"] if only and phase == "ALL" else []


def _window(p: Any) -> str:
    return ", ".join(
        f"{what} {text}"
        for what, field in (("kernel", "kernel_size"), ("stride", "stride"), ("pad", "pad"))
        if (text := _sizes(p, what, field))
    )


def _sizes(p: Any, what: str, field: str) -> str:
    """Return a window's field as text: one number, or one per axis; "" if it is not set."""
    if p.HasField(f"{what}_h") or p.HasField(f"{what}_w"):
        return f"{getattr(p, f'{what}_h')} x {getattr(p, f'{what}_w')}"
    value = getattr(p, field)
    return (str(value) if p.HasField(field) else "") if isinstance(value, int) else _joined(value)


def _joined(values: Sequence[int]) -> str:
    return " x ".join(map(str, values))


def colour(type_name: str) -> str:
    """Return the colour of the boxes of a layer type."""
    return COLOURS.get(type_name, LOSS if type_name.endswith("Loss") or type_name == "Accuracy" else OTHER)


def source(drawing: Drawing, name: str, rankdir: str) -> Any:
    """Return the drawing as a graphviz.Digraph. Raise ScaffeError if the package is not installed."""
    try:
        import graphviz
    except ImportError:
        raise ScaffeError("drawings need the package graphviz: pip install 'scaffe[draw]'") from None
    escape = graphviz.escape
    graph = graphviz.Digraph(
        escape(name or "net"), graph_attr={"rankdir": rankdir}, node_attr=NODE_STYLE, edge_attr=EDGE_STYLE
    )
    ids = {key: f"n{i}" for i, key in enumerate([*drawing.boxes, *drawing.blobs])}  # names may hold any character
    for key, (lines, colour) in drawing.boxes.items():
        graph.node(ids[key], escape("\n".join(lines)), **LAYER_STYLE, fillcolor=colour)
    for key, blob in drawing.blobs.items():
        graph.node(ids[key], escape(blob), **BLOB_STYLE)
    for tail, head, label in drawing.edges:
        graph.edge(ids[tail], ids[head], label=escape(label) if label else None)
    return graph


def render(graph: Any, suffix: str) -> bytes:
    """Return a drawing as a picture. Raise ScaffeError if graphviz's program is missing, or fails."""
    import graphviz

    try:
        return bytes(graph.pipe(format=suffix))
    except ValueError:
        raise ScaffeError(f"graphviz has no format '{suffix}'; it has png, svg, pdf, jpg and others") from None
    except graphviz.ExecutableNotFound:
        raise ScaffeError(
            "graphviz's program dot is not in PATH: install graphviz (apt install graphviz, or conda install "
            "graphviz), or write a .dot file, which does not need it"
        ) from None
    except graphviz.CalledProcessError as error:
        lines = (error.stderr or b"").decode(errors="replace").split("\n")
        raise ScaffeError(f"dot failed: {lines[0] or f'exit status {error.returncode}'}") from None
