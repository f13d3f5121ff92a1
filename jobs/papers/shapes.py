"""Shapes: the operations and bytes of a model's layers, and the bytes of its blobs, from shapes alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
import paper_nets

import scaffe
from scaffe.compute import Compute
from scaffe.engines.onednn.buffer_pool import BufferPool
from scaffe.tools.work import LayerWork, layer_works


@contextmanager
def built(name: str, training: bool, batch: int = 1) -> Iterator[scaffe.Net]:
    """Have a net with weights of 0; each layer has a kernel of its own."""
    made = paper_nets.get(name).train_val(batch=batch, data="input")
    for layer in made.layer:  # filling takes most of the time
        for part in (layer.convolution_param, layer.inner_product_param):
            part.ClearField("weight_filler")
    net = scaffe.Net(made, phase=scaffe.TRAIN if training else scaffe.TEST, compute=Compute(engine="reference"))
    try:
        yield net
    finally:
        net.close()


@cache
def works(name: str, training: bool = True) -> dict[str, LayerWork]:
    """Return the work of each layer of a model for one image, in the order of the forward pass."""
    with built(name, training) as net:
        return layer_works(net)


@cache
def parameters(name: str) -> float:
    """Return the bytes of a model's parameters."""
    return sum(work.parameters for work in works(name).values())


@cache
def activations(name: str) -> float:
    """Return the bytes of an image's blobs, which training keeps for the backward pass; gradients are not counted.

    Views and tops that overwrite their bottoms take no memory of their own.
    """
    with built(name, training=True) as net:
        layers = zip(net.layers, net.bottoms, net.tops, strict=True)
        own = {id(top): top.count for layer, below, tops in layers if not layer.views for top in tops}
        return 4.0 * sum(own.values())


@cache
def pooled(name: str, images: int) -> float:
    """Return the bytes of the buffers in which gradients take turns: of the blobs of some images, and of weights.

    As scaffe's engine has it: a convolution takes a buffer for its weights' gradient and returns it; then a layer takes
    one for each bottom, unless it is in place, and returns those of its tops. A free buffer serves from a quarter of
    its size on.
    """
    pool = BufferPool()
    held: dict[int, np.ndarray] = {}  # by the blob whose gradient it has
    with built(name, training=True) as net:
        passes = list(zip(net.layers, net.bottoms, net.tops, net.nodes, strict=True))
    for layer, bottoms, tops, node in passes[::-1]:
        if node.backward and layer.type == "Convolution":
            pool.put_back(pool.take(layer.blobs[0].count))
        read = {id(top) for top in tops}
        given = {id(blob): blob.count for blob, down in zip(bottoms, node.down, strict=True) if down}
        taken = {key: pool.take(images * count) for key, count in given.items() if key not in read}
        for key in read & held.keys() - given.keys():
            pool.put_back(held.pop(key))
        held |= taken
    return 4.0 * sum(buffer.size for buffer in (*pool.free, *held.values()))


def roofline(name: str, flops: float, bandwidth: float, training: bool = True) -> float:
    """Return the seconds of an image if each layer's passes take the longer of operations and bytes, at two rates."""
    seconds = 0.0
    for work in works(name, training).values():
        for way in range(1 + training):
            seconds += max(work.flops[way] / flops, work.moved[way] / bandwidth)
    return seconds
