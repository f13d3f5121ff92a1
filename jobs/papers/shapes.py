"""Shapes: the operations and bytes of a model's layers, and the bytes of its blobs, from shapes alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import scaffe
from scaffe import models
from scaffe.compute import Compute
from scaffe.tools.work import LayerWork, layer_works


@contextmanager
def built(name: str, training: bool, batch: int = 1) -> Iterator[scaffe.Net]:
    """Have a net with weights of 0; each layer has a kernel of its own."""
    made = models.get(name).train_val(batch=batch, data="input")
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


def roofline(name: str, flops: float, bandwidth: float, training: bool = True) -> float:
    """Return the seconds of an image if each layer's passes take the longer of operations and bytes, at two rates."""
    seconds = 0.0
    for work in works(name, training).values():
        for way in range(1 + training):
            seconds += max(work.flops[way] / flops, work.moved[way] / bandwidth)
    return seconds
