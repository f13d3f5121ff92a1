"""The CUDA engine: kernels of our own for what CuPy has no call for, or too many; products are cuBLAS's.

| file | what is in it |
|---|---|
| engine.py | compiles kernels and launches them |
| kernels/ | CUDA C++, a file for each kind of layer |
| convolution.py ... eltwise.py | the layers that launch them; everything else is the reference forms' |
| channels.py | channels cut into chunks, for BatchNorm and Scale |
| solvers.py | each rule's update as one launch |
"""

from scaffe.engines.cuda import (
    batch_norm,
    convolution,
    dropout,
    eltwise,
    lrn,
    pooling,
    scale,
    softmax,
    softmax_loss,
    solvers,
)
from scaffe.engines.cuda.engine import Engine

__all__ = [
    "Engine",
    "batch_norm",
    "convolution",
    "dropout",
    "eltwise",
    "lrn",
    "pooling",
    "scale",
    "softmax",
    "softmax_loss",
    "solvers",
]
