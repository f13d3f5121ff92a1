"""The heavy layers by oneDNN; importing this package registers them."""

from scaffe.engines.onednn import concat, convolution, inner_product, lrn, pooling, relu, sgd, split
from scaffe.engines.onednn.primitives import Engine

__all__ = ["Engine", "concat", "convolution", "inner_product", "lrn", "pooling", "relu", "sgd", "split"]
