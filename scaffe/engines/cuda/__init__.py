"""The CUDA engine: kernels of our own for what CuPy has no call for, or too many; products are cuBLAS's.

| file | what is in it |
|---|---|
| cupy_engine.py | Cupy: the reference forms on a GPU, their memory planned |
| launcher.py | Launcher: compiles kernels and launches them |
| engine.py | Cuda: the engine that computes by kernels |
| products.py | products of matrices by cuBLAS |
| cudnn.py | cuDNN's plans for one convolution |
| filters.py, ways.py | a convolution's passes by cuDNN, and which way each takes |
| layouts.py | channels last and back, to bfloat16 or from it |
| forms.py, typed_blobs.py | blobs that lie channels last, and which ones do |
| kernels/ | CUDA C++, a file for each kind of layer |
| convolution.py ... eltwise.py | the layers that launch them; everything else is the reference forms' |
| transform.py, data.py | what data layers do to images, on the device |
| channels.py | channels cut into chunks, for BatchNorm and Scale |
| pool.py, memory.py | where a net's blobs lie: a plan of offsets, and the blobs put there |
| graphs.py | groups of layers recorded once, and repeated by one call |
| report.py | the loss and wrong labels, which the host reads late |
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
from scaffe.engines.cuda.cupy_engine import Cupy
from scaffe.engines.cuda.engine import Cuda

__all__ = [
    "Cuda",
    "Cupy",
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
