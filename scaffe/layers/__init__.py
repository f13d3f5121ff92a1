"""The layers, one a file; importing this package registers them all.

For nets written in Python, each layer type is also a function here, as in pycaffe: see scaffe.netspec.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scaffe.errors import UnknownNameError
from scaffe.layers import (
    absval,
    accuracy,
    argmax,
    batch_norm,
    batch_reindex,
    bias,
    bnll,
    clip,
    concat,
    contrastive_loss,
    convolution,
    crop,
    data,
    deconvolution,
    dropout,
    dummy_data,
    eltwise,
    elu,
    embed,
    euclidean_loss,
    exp,
    filter,
    flatten,
    hdf5_data,
    hdf5_output,
    hinge_loss,
    im2col_layer,
    image_data,
    infogain_loss,
    inner_product,
    input,
    log,
    lrn,
    lstm,
    lstm_unit,
    memory_data,
    multinomial_logistic_loss,
    mvn,
    parameter,
    pooling,
    power,
    prelu,
    python,
    reduction,
    relu,
    reshape,
    rnn,
    scale,
    sigmoid,
    sigmoid_cross_entropy_loss,
    silence,
    slice,
    softmax,
    softmax_loss,
    split,
    spp,
    swish,
    tanh,
    threshold,
    tile,
    window_data,
)
from scaffe.layers.layer import known_types
from scaffe.netspec import Function, Top

__all__ = [
    "absval",
    "accuracy",
    "argmax",
    "batch_norm",
    "batch_reindex",
    "bias",
    "bnll",
    "clip",
    "concat",
    "contrastive_loss",
    "convolution",
    "crop",
    "data",
    "deconvolution",
    "dropout",
    "dummy_data",
    "eltwise",
    "elu",
    "embed",
    "euclidean_loss",
    "exp",
    "filter",
    "flatten",
    "hdf5_data",
    "hdf5_output",
    "hinge_loss",
    "im2col_layer",
    "image_data",
    "infogain_loss",
    "inner_product",
    "input",
    "log",
    "lrn",
    "lstm",
    "lstm_unit",
    "multinomial_logistic_loss",
    "memory_data",
    "mvn",
    "parameter",
    "pooling",
    "power",
    "prelu",
    "python",
    "reduction",
    "relu",
    "reshape",
    "rnn",
    "scale",
    "sigmoid",
    "sigmoid_cross_entropy_loss",
    "silence",
    "slice",
    "softmax",
    "softmax_loss",
    "split",
    "spp",
    "swish",
    "tanh",
    "threshold",
    "tile",
    "window_data",
]


def __getattr__(name: str) -> Callable[..., Any]:
    """Return the function that adds a layer of the type `name` to a net, given its bottoms and fields."""
    if name not in known_types():
        raise UnknownNameError(f"no layer type is called '{name}'; known types: {' '.join(known_types())}")

    def layer(*bottoms: Top, **fields: Any) -> Any:
        return Function(name, bottoms, fields).result()

    layer.__name__ = name
    return layer


def __dir__() -> list[str]:
    return [*globals(), *known_types()]
