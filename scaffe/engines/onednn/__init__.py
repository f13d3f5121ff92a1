"""The heavy layers by oneDNN; importing this package registers them."""

from scaffe.engines.onednn import (
    batch_norm,
    bn,
    concat,
    convolution,
    deconvolution,
    dropout,
    elementwise,
    eltwise,
    inner_product,
    lrn,
    pooling,
    scale,
    sgd,
    slice,
    softmax,
    split,
)
from scaffe.engines.onednn.primitives import Onednn

__all__ = [
    "Onednn",
    "batch_norm",
    "bn",
    "concat",
    "convolution",
    "deconvolution",
    "dropout",
    "elementwise",
    "eltwise",
    "inner_product",
    "lrn",
    "pooling",
    "scale",
    "sgd",
    "slice",
    "softmax",
    "split",
]
