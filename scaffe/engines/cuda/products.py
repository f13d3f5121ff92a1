"""Products of matrices by cuBLAS's GemmEx and GemmStridedBatchedEx, with the compute type in each call."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.devices.gpu import Gpu
from scaffe.engines.cuda import cublas
from scaffe.errors import CublasError

KINDS = {  # the compute type of float32 factors
    "float32": cublas.COMPUTE_32F,  # never in TF32, which the handle's mode of mathematics leaves off
    "tf32": cublas.COMPUTE_32F_FAST_TF32,
    "bf16": cublas.COMPUTE_32F_FAST_16BF,
}
TYPES = {np.dtype(np.float32): cublas.FLOAT, np.dtype(np.uint16): cublas.BFLOAT16}  # bfloat16 as its bits
_FACTORS = np.array([0, 1], np.float32)  # alpha and beta, which cuBLAS reads from host memory
ZERO, ONE = _FACTORS.ctypes.data, _FACTORS.ctypes.data + _FACTORS.itemsize


class Products:
    """Products of matrices of float32, whose elements are rounded to `compute` before they are multiplied, or bfloat16.

    Sums are float32. Arrays of bfloat16 have dtype uint16. CUDA graphs can record the products.
    """

    def __init__(self, gpu: Gpu, compute: str):
        self.gpu, self.compute = gpu, KINDS[compute]

    def prepare(self) -> None:
        """Make what products on the current stream need, since a recording can't."""
        cublas.of(self.gpu).handle()

    def __call__(self, a: Any, b: Any, out: Any, add: bool = False, bias: Any = None) -> None:
        """Write the product of `a` (M x K) and `b` (K x N) into `out` (M x N), or add it to `out`.

        With `bias` (N), of `out`'s dtype, it is added to every row. Each matrix may be a transposed view. With three
        axes, the first counts independent products; a `b` of two axes serves them all. `a` and `b` have one dtype;
        `out` is float32, or bfloat16 as they are. Raise CublasError, with the shapes, for other dtypes and where
        cuBLAS refuses.
        """
        if bias is not None:
            out[...] = bias
        _check(a, b, out)
        if out.strides[-1] != out.itemsize and out.shape[-1] > 1:
            a, b, out = _turned(b), _turned(a), _turned(out)
        # cuBLAS reads matrices in Fortran order, as their transposes: so the factors are swapped.
        (op_b, *x), (op_a, *y), (_, *z) = (_side(matrix, len(out.shape)) for matrix in (b, a, out))
        sizes = out.shape[-1], out.shape[-2], a.shape[-1]
        kind = self.compute if a.dtype == np.float32 else cublas.COMPUTE_32F
        beta = ONE if add or bias is not None else ZERO
        count = out.shape[:-2]  # of a batch
        name = "cublasGemmStridedBatchedEx_64" if count else "cublasGemmEx_64"
        library = cublas.of(self.gpu)
        try:
            library.call(
                name, library.handle(), op_b, op_a, *sizes, ONE, *x, *y, beta, *z, *count, kind, cublas.GEMM_DEFAULT
            )
        except CublasError as error:
            raise CublasError(f"{_shapes(a, b, out)}: {error}") from None


def _check(a: Any, b: Any, out: Any) -> None:
    """Raise CublasError for dtypes that cuBLAS does not multiply."""
    if a.dtype != b.dtype or a.dtype not in TYPES or out.dtype not in (a.dtype, np.float32):
        raise CublasError(f"{_shapes(a, b, out)}: no product of {a.dtype} by {b.dtype} into {out.dtype}")


def _shapes(a: Any, b: Any, out: Any) -> str:
    return f"product of {a.shape} by {b.shape} into {out.shape}"


def _side(matrix: Any, axes: int) -> tuple[int, ...]:
    """Return the operation on a matrix, and it as cuBLAS takes it: of three axes, the elements to the next too."""
    turned, leading = _layout(matrix)
    step = () if axes == 2 else (matrix.strides[0] // matrix.itemsize if len(matrix.shape) == 3 else 0,)
    return cublas.T if turned else cublas.N, matrix.data.ptr, TYPES[matrix.dtype], leading, *step


def _layout(matrix: Any) -> tuple[bool, int]:
    """Return whether a matrix is a transposed view, and its leading dimension in elements."""
    (rows, columns), (down, right) = matrix.shape[-2:], (stride // matrix.itemsize for stride in matrix.strides[-2:])
    if right == 1 or columns == 1:
        return False, max(down if rows > 1 else 1, columns)
    if down == 1 or rows == 1:
        return True, max(right, rows)
    raise ValueError(f"cuBLAS needs a stride of 1 element, got shape {matrix.shape}, strides {matrix.strides} (bytes)")


def _turned(matrix: Any) -> Any:
    """Return the transpose of a matrix, or of each matrix of a batch, as a view."""
    axes = len(matrix.shape)
    return matrix.transpose(*range(axes - 2), axes - 1, axes - 2)
