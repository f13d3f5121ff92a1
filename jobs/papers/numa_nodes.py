"""Domains: machines of NUMA nodes, and the work of a net's layers on them, as NUMA-Caffe's figures need it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import ceil, prod
from typing import Any

import shapes
from figure import ASSUMED, DERIVED, STATED, Input

from scaffe.layers.pooling import Pooling
from scaffe.proto import PoolingParameter

CONVOLUTION, INNER = "Convolution", "InnerProduct"
TILE = 16, 6  # rows and columns of a result that a thread computes at once, as with Haswell's registers


@dataclass(frozen=True)
class Box:
    """A machine: NUMA nodes, cores of each.

    Of a core: operations/s, and bytes/s of loops over elements. Of a node: bytes/s of its memory and of its links to
    the other nodes, bytes of its last cache.
    """

    nodes: int
    cores: int
    flops: float
    core: float
    memory: float
    link: float
    cache: float


BOXES = {
    "SB": Box(4, 8, 43.2e9, 8e9, 51.2e9, 16e9, 20e6),
    "BW": Box(4, 14, 64e9, 8e9, 68e9, 19.2e9, 35e6),
    "AMD": Box(8, 6, 15.2e9, 4e9, 21.3e9, 6.4e9, 5e6),
    "KNL": Box(4, 16, 83.2e9, 3e9, 25.6e9, 100e9, 8e6),
}
NETS = {"CIFAR-10": "cifar10_quick", "AlexNet": "alexnet", "GoogLeNet": "googlenet"}
BATCHES = {"CIFAR-10": 128, "AlexNet": 256, "GoogLeNet": 64}
UPDATE = 11  # passes over the parameters of Caffe's SGD: decay 3, momentum 3, copy 2, subtraction 3


@dataclass(frozen=True)
class Part:
    """A layer's work for one image; bytes, but for `products` and `ways`.

    - `products`: rows, columns and inner length of each pass's matrix products, and how many there are (groups): the
      forward pass, the weights' gradients and, unless no layer below learns, the bottom's. Empty without products.
    - `bottom`, `top`: of the blobs; 0 for views. `ways`: 1 for a forward pass alone, 2 without the bottom's gradient.
    - `moved`: what the passes read and write of blobs, each blob of a pass once.
    - `columns`: of im2col's buffer; 0 where the image itself is the factor.
    - `places`: of the elements that a pooling chose, which its gradient needs; 0 for means.
    """

    name: str
    type: str
    products: tuple[tuple[int, int, int, int], ...]
    bottom: float
    top: float
    ways: int
    moved: float
    columns: float
    weights: float
    places: float = 0.0

    @property
    def flops(self) -> float:
        """Return the operations of the products."""
        return sum(2.0 * prod(product) for product in self.products)

    @property
    def element_wise(self) -> float:
        """Return what loops over elements read and write: im2col, col2im, and all of a layer without products."""
        if not self.products:
            return self.moved
        return self.ways * (self.bottom + self.columns) * bool(self.columns)

    def fetched(self, nodes: int) -> list[float]:
        """Return what each way's products load from the first node if threads of all nodes share one image's.

        Threads divide the longer side of the result: its factor is loaded once, the other factor by each node. Weights
        stay in the caches from image to image.
        """
        found = []
        for way, (rows, columns, length, groups) in enumerate(self.products):
            once, all_nodes = (nodes - 1) / nodes, nodes - 1
            first, second = (all_nodes, once) if columns >= rows else (once, all_nodes)
            factors = second * columns + first * rows * (way == 1)  # else the first factor is weights
            found.append(4.0 * groups * length * factors)
        return found

    def results(self) -> list[float]:
        """Return the bytes of each way's result that another thread reads; the weights' gradient stays in caches."""
        return [
            4.0 * groups * rows * columns * (way != 1) for way, (rows, columns, _, groups) in enumerate(self.products)
        ]

    def unfolded(self, cache: float, threads: int) -> float:
        """Return what goes to memory of threads' columns, which are written and read in each way: 0 if they fit."""
        return 2 * self.ways * self.columns * (threads * self.columns > cache)


@cache
def parts(net: str) -> tuple[Part, ...]:
    """Return the work of the layers of one of NETS."""
    works = shapes.works(NETS[net])
    with shapes.built(NETS[net], training=True) as made:
        layers = zip(made.layers, made.bottoms, made.tops, made.nodes, strict=True)
        return tuple(_part(*each, sum(works[each[0].name].moved)) for each in layers)


def _part(layer: Any, bottoms: Any, tops: Any, node: Any, moved: float) -> Part:
    bottom, top = (4.0 * (not layer.views) * sum(blob.count for blob in blobs) for blobs in (bottoms, tops))
    ways = 1 + node.backward + (node.backward and any(node.down))
    products: tuple[tuple[int, int, int, int], ...] = ()
    columns = 0.0
    if layer.type == CONVOLUTION:
        rows, length, pixels = layer.outputs // layer.group, prod(layer.blobs[0].shape[1:]), prod(tops[0].shape[2:])
        sides = (rows, pixels, length), (rows, length, pixels), (length, pixels, rows)
        products = tuple((*side, layer.group) for side in sides[:ways])
        if {*layer.kernel, *layer.stride} != {1} or any(layer.pad):
            columns = 4.0 * layer.group * length * pixels
    elif layer.type == INNER:
        products = ((1, layer.outputs, layer.inputs, 1),) * ways
    weights = 4.0 * sum(blob.count for blob in layer.blobs)
    chooses = isinstance(layer, Pooling) and layer.param.pooling_param.pool == PoolingParameter.MAX
    return Part(layer.name, layer.type, products, bottom, top, ways, moved, columns, weights, top * chooses)


def weights(net: str, *types: str) -> float:
    """Return the bytes of a net's parameters, those of layers of some types if there are any."""
    return sum(part.weights for part in parts(net) if not types or part.type in types)


def spread(product: tuple[int, int, int, int], threads: int) -> float:
    """Return the part of threads' time that a product keeps busy, if a thread computes whole tiles of its result."""
    tiles = ceil(product[0] / TILE[0]) * ceil(product[1] / TILE[1])
    return tiles / (threads * ceil(tiles / threads))


def counts(box: Box) -> list[int]:
    """Return the numbers of nodes: 1, 2, 4, ..."""
    return [1 << k for k in range(box.nodes.bit_length())]


def of_box(name: str, box: Box) -> Iterator[Input]:
    """Yield a machine's inputs."""
    clock = (DERIVED, "table 1; width of the vectors assumed")
    if name == "AMD":  # table 1 has an idle clock
        clock = (ASSUMED, "1.9 GHz, the processor's data sheet; width of the vectors")
    yield Input(f"{name}: operations", box.flops, "1/s of a core", *clock)
    yield Input(f"{name}: memory", box.memory, "bytes/s of a node", ASSUMED, "the processor's channels")
    link = "the processor's links" if name != "KNL" else "one die: no limit"
    yield Input(f"{name}: link", box.link, "bytes/s out of a node", ASSUMED, link)
    yield Input(f"{name}: core", box.core, "bytes/s of a core", ASSUMED, "loops over elements")
    cache = (ASSUMED, "table 1, a cache for two cores") if name == "KNL" else (STATED, "table 1, L3")
    yield Input(f"{name}: cache", box.cache, "bytes of a node", *cache)


def of_net(name: str) -> Input:
    """Return a net's input; the rest is counted from its shapes."""
    given = (STATED, "section 3"), (DERIVED, "section 4.1: batches of 64 to 256, and the other nets have 128 and 256")
    return Input(f"{name}: batch", BATCHES[name], "images", *given[name == "GoogLeNet"])
