"""About: what the writers of numbers get once: texts on a run, its net as a graph, and pictures."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import fields

import numpy as np

from scaffe.blob import on_host
from scaffe.blobs.packed import ParameterBlob
from scaffe.errors import ScaffeError
from scaffe.monitor.log import log
from scaffe.monitor.numbers import Node
from scaffe.net.graph import labels
from scaffe.net.net import Net
from scaffe.parallel.hosts import describe
from scaffe.parallel.world import World
from scaffe.proto import NetParameter, SolverParameter
from scaffe.setting import settings_of
from scaffe.tools import draw, filters
from scaffe.training.settings import Settings
from scaffe.version import __version__


def texts(param: SolverParameter, settings: Settings, world: World, net: Net) -> dict[str, str]:
    """Return texts by tag: the solver's fields, the net's layers, the settings, the ranks and the versions."""
    solver = SolverParameter()
    solver.CopyFrom(param)
    for field in ("net_param", "train_net_param", "test_net_param"):
        solver.ClearField(field)
    versions = f"scaffe {__version__}\nPython {platform.python_version()}\nnumpy {np.__version__}"
    return {
        "about/solver": str(solver),
        "about/net": str(without_splits(net.param)),
        "about/settings": "\n".join(_lines(settings)),
        "about/ranks": "\n".join(describe(world)),
        "about/versions": f"{versions}\n{platform.platform()}\nengine {net.engine.name}",
    }


def _lines(settings: Settings) -> list[str]:
    """Return a line for each setting, as in a TOML file."""
    records = {one.name: getattr(settings, one.name) for one in fields(settings)}
    return [
        f"{name}.{one.key} = {getattr(record, one.name)!r}"
        for name, record in records.items()
        for one in settings_of(type(record))
    ]


def without_splits(net: NetParameter) -> NetParameter:
    """Return a built net's layers as in its file, without the Split layers that building inserts."""
    bare, source = NetParameter(), dict[str, str]()
    bare.CopyFrom(net)
    bare.ClearField("layer")
    for layer in net.layer:
        if layer.type == "Split":
            source.update(dict.fromkeys(layer.top, layer.bottom[0]))
        else:
            copy = bare.layer.add()
            copy.CopyFrom(layer)
            copy.bottom[:] = [source.get(name, name) for name in layer.bottom]
    return bare


def nodes(net: NetParameter) -> list[Node]:
    """Return the layers as nodes of a graph."""
    makers: dict[str, str] = {}
    found = []
    for layer, label in zip(net.layer, labels(net.layer), strict=True):
        found.append(Node(label, layer.type, [makers[name] for name in layer.bottom if name in makers]))
        makers.update(dict.fromkeys(layer.top, label))
    return found


def drawing(net: Net) -> Callable[[], bytes]:
    """Return a function that draws the net as a PNG file; without graphviz it logs that, and returns b""."""
    shapes = {name: " x ".join(map(str, blob.shape)) for name, blob in net.blobs.items()}
    param = without_splits(net.param)

    def render() -> bytes:
        try:
            return draw.render(draw.source(draw.diagram(param, "TRAIN", shapes), param.name, "TB"), "png")
        except ScaffeError as error:
            log.info("The net's drawing is left out: %s", error)
            return b""

    return render


def first_filters(net: Net) -> dict[str, Callable[[], bytes]]:
    """Return, by tag, a function that makes a PNG file of the first convolution's filters as they are now."""
    packed = net.packed
    first = next((i for i, p in enumerate(packed.parameters) if _is_filter(net, p)), None)
    if first is None:
        return {}
    weights = on_host(packed.view(packed.flat, first)).copy()  # a blob's array would be taken for one that a user keeps
    return {f"filters/{packed.parameters[first].layer}": lambda: filters.png(weights)}


def _is_filter(net: Net, parameter: ParameterBlob) -> bool:
    kinds = {layer.name: layer.type for layer in net.layers if layer.blobs}
    return kinds[parameter.layer] == "Convolution" and len(parameter.blob.shape) == 4
