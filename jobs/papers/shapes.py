"""Shapes: the operations and bytes of a model's layers, and the bytes of its blobs, from shapes alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import paper_nets

import scaffe
from scaffe.compute import Compute
from scaffe.tools.work import LayerWork, layer_works


@contextmanager
def built(name: str, training: bool) -> Iterator[scaffe.Net]:
    """Have a net with a batch of 1 and weights of 0; each layer has a kernel of its own."""
    made = paper_nets.get(name).train_val(batch=1, data="input")
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
def in_turn(name: str) -> float:
    """Return the bytes of an image's gradients of blobs where they take turns: those of the layer with most.

    A layer reads its tops' gradients and writes its bottoms'.
    """
    with built(name, training=True) as net:
        layers = zip(net.bottoms, net.tops, net.nodes, strict=True)
        return 4.0 * max(
            sum({id(one): one.count for one in (*a, *b)}.values()) for a, b, node in layers if node.backward
        )


def roofline(name: str, flops: float, bandwidth: float, training: bool = True) -> float:
    """Return the seconds of an image if each layer's passes take the longer of operations and bytes, at two rates."""
    seconds = 0.0
    for work in works(name, training).values():
        for way in range(1 + training):
            seconds += max(work.flops[way] / flops, work.moved[way] / bandwidth)
    return seconds
