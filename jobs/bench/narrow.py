"""Narrow: a net whose layers have fewer outputs, so that a large net's messages fit slow links."""

from __future__ import annotations

from scaffe.proto import NetParameter


def narrowed(net: NetParameter, width: float) -> NetParameter:
    """Give each convolution and inner product `width` times as many outputs, classes included; return the net.

    Bytes and operations change by the square, except the first layer's: the layers keep their proportions. Each must
    have a whole number of outputs for each group.
    """
    for layer in net.layer:
        for part in (layer.convolution_param, layer.inner_product_param):
            if part.num_output:
                part.num_output = round(width * part.num_output)
    return net
