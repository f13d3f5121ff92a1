"""Convolutions with batch normalisation: followed by BatchNorm and Scale."""

from __future__ import annotations

from typing import Any

from scaffe import layers as L
from scaffe.models.blocks import MSRA, named, rectified
from scaffe.spec.netspec import NetSpec, Top


def normalised(n: NetSpec, bn: str, scale: str, bottom: Top, in_place: bool = True) -> Top:
    """Add a BatchNorm called `bn`, in place or not, and a Scale called `scale` in place; return the last top."""
    n[bn] = L.BatchNorm(bottom, in_place=in_place)
    return named(n, scale, L.Scale(n[bn], bias_term=True, in_place=True))


def conv_bn(n: NetSpec, name: str, bottom: Top, outputs: int, kernel: int, relu: str, **fields: Any) -> Top:
    """Add a Convolution without biases, its normalisation `name`/bn with `name`/scale, and a ReLU."""
    fields.setdefault("param", [dict(lr_mult=1, decay_mult=1)])
    n[name] = L.Convolution(
        bottom, num_output=outputs, kernel_size=kernel, bias_term=False, weight_filler=MSRA, **fields
    )
    return rectified(n, normalised(n, f"{name}/bn", f"{name}/scale", n[name], in_place=False), relu)
