"""Narrow: a net whose layers have fewer outputs, so that a large net's messages fit slow links."""

from __future__ import annotations

from collections.abc import Collection

from scaffe.proto import NetParameter


def narrowed(net: NetParameter, width: float, layers: Collection[str] | None = None) -> NetParameter:
    """Give these convolutions and inner products, by default all, `width` times as many outputs; return the net.

    Where all have them, classes included, bytes and operations change by the square, except the first layer's: the
    layers keep their proportions. Each must have a whole number of outputs for each group.
    """
    for layer in net.layer:
        for part in (layer.convolution_param, layer.inner_product_param):
            if part.num_output and (layers is None or layer.name in layers):
                part.num_output = round(width * part.num_output)
    return net
