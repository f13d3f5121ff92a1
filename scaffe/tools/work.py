"""Work: the operations and bytes of a net's layers, counted from its shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from scaffe.blob import Blob
from scaffe.layers.recurrent import Recurrent
from scaffe.net.net import Net
from scaffe.tools.benchmark import layer_operations

BYTES = 4  # of an element
CHANNELS = 16  # that a core computes at once: a register of AVX-512


@dataclass(frozen=True)
class LayerWork:
    """The work of a layer's forward and backward pass.

    - `flops`: floating-point operations of each pass's matrix products; 0 for a layer without.
    - `moved`: bytes of the blobs that each pass reads and writes, each blob once; none for tops that are views.
    - `parameters`: bytes of the parameters; `gradients`: of those whose gradients are computed.
    - `units`: parts into which threads divide the layer, a sample's block of 16 channels each; 0 for a layer without
      bottoms, whose work is that of reader threads.
    """

    flops: tuple[float, float]
    moved: tuple[float, float]
    parameters: float = 0.0
    gradients: float = 0.0
    units: int = 1


def layer_works(net: Net) -> dict[str, LayerWork]:
    """Return the work of each layer, by its label."""
    return {layer.label: _work(net, i) for i, layer in enumerate(net.layers)}


def _work(net: Net, i: int) -> LayerWork:
    layer, bottoms, tops, node = net.layers[i], net.bottoms[i], net.tops[i], net.nodes[i]
    learns = node.backward and any(layer.param_propagate_down)
    learned = [blob for k, blob in enumerate(layer.blobs) if learns and k not in layer.statistics]
    below = [blob for blob, down in zip(bottoms, node.down, strict=True) if node.backward and down]
    products = layer_operations(layer, tops) + _recurrent_products(net, i)
    return LayerWork(
        flops=(products, products * (bool(below) + bool(learned))),
        moved=(
            BYTES * (not layer.views) * (_elements(bottoms) + _elements(tops)),
            BYTES * node.backward * (_elements(bottoms) + _elements(tops) + _elements(below)),
        ),
        parameters=BYTES * _elements(layer.blobs),
        gradients=BYTES * _elements(learned),
        units=max(map(_units, (*bottoms, *tops))) if bottoms else 0,
    )


def _recurrent_products(net: Net, i: int) -> int:
    """Return the operations of a recurrent layer's products: each weight is used for each step of each sequence."""
    layer = net.layers[i]
    if not isinstance(layer, Recurrent):
        return 0
    return 2 * prod(net.bottoms[i][0].shape[:2]) * sum(blob.count for blob in layer.blobs if len(blob.shape) > 1)


def _elements(blobs: Sequence[Blob]) -> int:
    return sum(blob.count for blob in blobs)


def _units(blob: Blob) -> int:
    samples, channels = (*blob.shape, 1, 1)[:2]
    return max(1, samples * -(-channels // CHANNELS))
