"""The heavy layers by oneDNN; importing this package registers them."""

from scaffe.engines.onednn import convolution, inner_product, lrn, pooling, relu, split
from scaffe.engines.onednn.primitives import Engine

__all__ = ["Engine", "convolution", "inner_product", "lrn", "pooling", "relu", "split"]
