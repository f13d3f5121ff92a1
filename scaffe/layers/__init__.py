"""The layers, one a file; importing this package registers them all."""

from scaffe.layers import (
    accuracy,
    concat,
    convolution,
    data,
    dropout,
    dummy_data,
    euclidean_loss,
    inner_product,
    input,
    lrn,
    pooling,
    relu,
    silence,
    softmax,
    softmax_loss,
    split,
)

__all__ = [
    "accuracy",
    "concat",
    "convolution",
    "data",
    "dropout",
    "dummy_data",
    "euclidean_loss",
    "inner_product",
    "input",
    "lrn",
    "pooling",
    "relu",
    "silence",
    "softmax",
    "softmax_loss",
    "split",
]
