"""Blocks of the models: groups of layers that most of them share."""

from __future__ import annotations

from typing import Any

from scaffe import layers as L
from scaffe.spec.netspec import NetSpec, Top

Filler = dict[str, Any]

XAVIER: Filler = dict(type="xavier")
MSRA: Filler = dict(type="msra")
RATES = [dict(lr_mult=1), dict(lr_mult=2)]  # of the weights and the biases
RATES_AND_DECAYS = [dict(lr_mult=1, decay_mult=1), dict(lr_mult=2, decay_mult=0)]


def gaussian(std: float) -> Filler:
    """Return a gaussian filler with mean 0 and standard deviation `std`."""
    return dict(type="gaussian", std=std)


def constant(value: float) -> Filler:
    """Return a constant filler; `value` 0, Caffe's default, is left out."""
    return dict(type="constant", value=value) if value else dict(type="constant")


def named(n: NetSpec, name: str, top: Top) -> Top:
    """Give a top its name; return it."""
    n[name] = top
    return top


def conv(
    n: NetSpec,
    name: str,
    bottom: Top,
    outputs: int,
    kernel: int,
    relu: str = "",
    weights: Filler = XAVIER,
    bias: float = 0,
    **fields: Any,
) -> Top:
    """Add a Convolution and, if `relu` is its name, a ReLU in place; return the last top."""
    fields.setdefault("param", RATES_AND_DECAYS)
    fields["bias_filler"] = constant(bias)
    n[name] = L.Convolution(bottom, num_output=outputs, kernel_size=kernel, weight_filler=weights, **fields)
    return rectified(n, n[name], relu)


def fc(
    n: NetSpec,
    name: str,
    bottom: Top,
    outputs: int,
    relu: str = "",
    weights: Filler = XAVIER,
    bias: float = 0,
    **fields: Any,
) -> Top:
    """Add an InnerProduct and, if `relu` is its name, a ReLU in place; return the last top."""
    fields.setdefault("param", RATES_AND_DECAYS)
    fields["bias_filler"] = constant(bias)
    n[name] = L.InnerProduct(bottom, num_output=outputs, weight_filler=weights, **fields)
    return rectified(n, n[name], relu)


def rectified(n: NetSpec, bottom: Top, relu: str) -> Top:
    """Add a ReLU in place, if `relu` is its name; return the last top."""
    if not relu:
        return bottom
    return named(n, relu, L.ReLU(bottom, in_place=True))


def pool(n: NetSpec, name: str, bottom: Top, kernel: int, stride: int, method: str = "MAX", **fields: Any) -> Top:
    """Add a Pooling."""
    return named(n, name, L.Pooling(bottom, pool=method, kernel_size=kernel, stride=stride, **fields))


def dropout(n: NetSpec, name: str, bottom: Top, ratio: float = 0.5) -> Top:
    """Add a Dropout in place."""
    return named(n, name, L.Dropout(bottom, dropout_ratio=ratio, in_place=True))
