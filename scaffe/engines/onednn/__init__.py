"""The heavy layers by oneDNN; importing this package registers them."""

from scaffe.engines.onednn import concat, convolution, elementwise, inner_product, lrn, pooling, split
from scaffe.engines.onednn.primitives import Engine

__all__ = ["Engine", "concat", "convolution", "elementwise", "inner_product", "lrn", "pooling", "split"]
