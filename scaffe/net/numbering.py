"""Numbering: a net's layers and blobs by name and by number, as pycaffe has them.

Layers are numbered in the order of the prototxt, blobs in the order in which layers make them. The layers that Caffe
inserts to split a blob count, and so do their tops. A loss without a top has no number.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from scaffe.blob import Blob
from scaffe.devices.choices import Work
from scaffe.layers.layer import Layer
from scaffe.net.graph import LayerNode
from scaffe.proto import NetParameter


class Numbered(Protocol):
    """A scaffe.Net, as far as it is numbered; its `losses` are layers, tops and weights."""

    param: NetParameter
    layers: list[Layer]
    nodes: list[LayerNode]
    bottoms: list[list[Blob]]
    tops: list[list[Blob]]
    blobs: OrderedDict[str, Blob]
    inputs: list[str]
    outputs: list[str]
    losses: list[tuple[int, int, float]]


def describe(net: Numbered) -> Iterator[str]:
    """Iterate over a line per layer: its type, bottoms and tops with their shapes."""
    for i, node in enumerate(net.nodes):
        bottoms, tops = (
            ", ".join(f"{name} {blob.shape}" for name, blob in zip(names, blobs, strict=True))
            for names, blobs in ((node.bottoms, net.bottoms[i]), (node.tops, net.tops[i]))
        )
        yield f"{net.layers[i].name} ({net.layers[i].type}): {bottoms} -> {tops}".replace(":  ->", ": ->")


def works(net: Numbered) -> Iterator[Mapping[str, Work]]:
    """Iterate over each layer's pieces of work by name."""
    for layer, node, bottom, top in zip(net.layers, net.nodes, net.bottoms, net.tops, strict=True):
        yield layer.works(bottom, top, any(node.down))


def loss_weights(net: Numbered) -> dict[str, float]:
    """Return the weights of the blobs that make up the loss."""
    return {net.nodes[i].tops[j]: weight for i, j, weight in net.losses}


def layer_dict(net: Numbered) -> OrderedDict[str, Layer]:
    """Return the layers by name."""
    return OrderedDict((layer.name, layer) for layer in net.layers)


def top_names(net: Numbered) -> OrderedDict[str, list[str]]:
    """Return the names of each layer's tops, by layer name."""
    return OrderedDict((param.name, list(param.top)) for param in net.param.layer)


def bottom_names(net: Numbered) -> OrderedDict[str, list[str]]:
    """Return the names of each layer's bottoms, by layer name."""
    return OrderedDict((param.name, list(param.bottom)) for param in net.param.layer)


def blob_loss_weights(net: Numbered) -> OrderedDict[str, float]:
    """Return each blob's weight in the loss, by name, 0 for those that are no part of it."""
    found = loss_weights(net)
    return OrderedDict((name, found.get(name, 0.0)) for name in net.blobs)


def layer_names(net: Numbered) -> list[str]:
    """Return the names of the layers, by number."""
    return [layer.name for layer in net.layers]


def blob_names(net: Numbered) -> list[str]:
    """Return the names of the blobs, by number."""
    return list(net.blobs)


def blobs(net: Numbered) -> list[Blob]:
    """Return the blobs, by number."""
    return list(net.blobs.values())


def weights(net: Numbered) -> list[float]:
    """Return the weights of the blobs in the loss, by number."""
    return list(blob_loss_weights(net).values())


def inputs(net: Numbered) -> list[int]:
    """Return the numbers of the input blobs."""
    return _numbers(net, net.inputs)


def outputs(net: Numbered) -> list[int]:
    """Return the numbers of the output blobs."""
    return _numbers(net, net.outputs)


def top_ids(net: Numbered, layer: int) -> list[int]:
    """Return the numbers of a layer's tops."""
    return _numbers(net, net.param.layer[layer].top)


def bottom_ids(net: Numbered, layer: int) -> list[int]:
    """Return the numbers of a layer's bottoms."""
    return _numbers(net, net.param.layer[layer].bottom)


def _numbers(net: Numbered, names: Iterable[str]) -> list[int]:
    numbers = {name: number for number, name in enumerate(net.blobs)}
    return [numbers[name] for name in names]
