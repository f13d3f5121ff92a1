"""What the models are made of: layers that stand together in most of them."""

from __future__ import annotations

from typing import Any

from scaffe import layers as L
from scaffe.netspec import NetSpec, Top

Filler = dict[str, Any]

XAVIER: Filler = dict(type="xavier")
MSRA: Filler = dict(type="msra")
RATES = [dict(lr_mult=1), dict(lr_mult=2)]  # of weights and of biases
RATES_AND_DECAYS = [dict(lr_mult=1, decay_mult=1), dict(lr_mult=2, decay_mult=0)]


def gaussian(std: float) -> Filler:
    """Return the filler that draws with mean 0 and this standard deviation."""
    return dict(type="gaussian", std=std)


def constant(value: float) -> Filler:
    """Return the filler that sets all to a value, which goes without saying when 0."""
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
    """Add a Convolution and, if it has a name, a ReLU in place; return the last top."""
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
    """Add an InnerProduct and, if it has a name, a ReLU in place; return the last top."""
    fields.setdefault("param", RATES_AND_DECAYS)
    fields["bias_filler"] = constant(bias)
    n[name] = L.InnerProduct(bottom, num_output=outputs, weight_filler=weights, **fields)
    return rectified(n, n[name], relu)


def rectified(n: NetSpec, bottom: Top, relu: str) -> Top:
    """Add a ReLU in place, if it has a name; return the last top."""
    if not relu:
        return bottom
    return named(n, relu, L.ReLU(bottom, in_place=True))


def pool(n: NetSpec, name: str, bottom: Top, kernel: int, stride: int, method: str = "MAX", **fields: Any) -> Top:
    """Add a Pooling."""
    return named(n, name, L.Pooling(bottom, pool=method, kernel_size=kernel, stride=stride, **fields))


def dropout(n: NetSpec, name: str, bottom: Top, ratio: float = 0.5) -> Top:
    """Add a Dropout in place."""
    return named(n, name, L.Dropout(bottom, dropout_ratio=ratio, in_place=True))
