"""The CUDA engine: kernels of our own for what CuPy has no call for, or too many; products are cuBLAS's.

| file | what is in it |
|---|---|
| engine.py | compiles kernels and launches them |
| products.py | products of matrices by cuBLAS |
| cudnn.py | cuDNN's plans for one convolution |
| filters.py, ways.py | a convolution's passes by cuDNN, and which way each takes |
| layouts.py | channels last and back, to bfloat16 or from it |
| kernels/ | CUDA C++, a file for each kind of layer |
| convolution.py ... eltwise.py | the layers that launch them; everything else is the reference forms' |
| transform.py, data.py | what data layers do to images, on the device |
| channels.py | channels cut into chunks, for BatchNorm and Scale |
| pool.py, memory.py | where a net's blobs lie: a plan of offsets, and the blobs put there |
| graphs.py | runs of layers recorded once, and repeated by one call |
| report.py | the loss and wrong labels, which the host is told late |
| solvers.py | each rule's update as one launch |
"""

from scaffe.engines.cuda import (
    accuracy,
    batch_norm,
    convolution,
    data,
    dropout,
    eltwise,
    inner_product,
    lrn,
    parts,
    pooling,
    relu,
    scale,
    softmax,
    softmax_loss,
    solvers,
)
from scaffe.engines.cuda.engine import Engine

__all__ = [
    "Engine",
    "accuracy",
    "batch_norm",
    "convolution",
    "data",
    "dropout",
    "eltwise",
    "inner_product",
    "lrn",
    "parts",
    "pooling",
    "relu",
    "scale",
    "softmax",
    "softmax_loss",
    "solvers",
]
