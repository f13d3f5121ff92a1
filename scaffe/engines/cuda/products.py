"""Products of matrices by cuBLAS's gemmEx and gemmStridedBatchedEx, with the compute type in each call."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

KINDS = {  # cuBLAS's compute type for each data type of the factors; all accumulate in float32
    "float32": "CUBLAS_COMPUTE_32F",
    "tf32": "CUBLAS_COMPUTE_32F_FAST_TF32",
    "bf16": "CUBLAS_COMPUTE_32F_FAST_16BF",
}
FLOAT = 0  # CUDA_R_32F of library_types.h
_FACTORS = np.array([0, 1], np.float32)  # alpha and beta, which cuBLAS reads from host memory
ZERO, ONE = _FACTORS.ctypes.data, _FACTORS.ctypes.data + _FACTORS.itemsize
ITEM = _FACTORS.itemsize


class Products:
    """Products of float32 matrices, whose elements are rounded to `compute` before they are multiplied.

    CuPy's own matmul takes the compute type from an environment variable, and cannot add to its output.
    """

    def __init__(self, xp: ModuleType, compute: str):
        self.xp, self.cublas = xp, xp.cuda.cublas
        self.compute = getattr(self.cublas, KINDS[compute])

    def __call__(self, a: Any, b: Any, out: Any, add: bool = False) -> None:
        """Write the product of `a` (M x K) and `b` (K x N) into `out` (M x N), or add it to `out`.

        Each may be a transposed view. With three axes, the first counts independent products.
        """
        if out.strides[-1] != ITEM and out.shape[-1] > 1:
            a, b, out = _turned(b), _turned(a), _turned(out)
        cublas, axes = self.cublas, len(out.shape)
        (op_a, ld_a), (op_b, ld_b), (_, ld_out) = (_layout(matrix) for matrix in (a, b, out))
        ops = [cublas.CUBLAS_OP_T if op else cublas.CUBLAS_OP_N for op in (op_b, op_a)]
        # cuBLAS reads matrices in Fortran order, as their transposes: so the factors are swapped.
        sizes = out.shape[-1], out.shape[-2], a.shape[-1]
        handle = self.xp.cuda.device.get_cublas_handle()
        how: tuple[int, ...]
        sides: list[tuple[int, ...]] = [
            (matrix.data.ptr, FLOAT, ld) for matrix, ld in ((b, ld_b), (a, ld_a), (out, ld_out))
        ]
        if axes == 2:
            x, y, z = sides
            how = self.compute, cublas.CUBLAS_GEMM_DEFAULT
            cublas.gemmEx(handle, *ops, *sizes, ONE, *x, *y, ONE if add else ZERO, *z, *how)
        else:
            x, y, z = ((*side, m.strides[0] // ITEM) for side, m in zip(sides, (b, a, out), strict=True))
            how = out.shape[0], self.compute, cublas.CUBLAS_GEMM_DEFAULT
            cublas.gemmStridedBatchedEx(handle, *ops, *sizes, ONE, *x, *y, ONE if add else ZERO, *z, *how)


def _layout(matrix: Any) -> tuple[bool, int]:
    """Return whether a matrix is a transposed view, and its leading dimension in elements."""
    (rows, columns), (down, right) = matrix.shape[-2:], (stride // ITEM for stride in matrix.strides[-2:])
    if right == 1 or columns == 1:
        return False, max(down if rows > 1 else 1, columns)
    if down == 1 or rows == 1:
        return True, max(right, rows)
    raise ValueError(f"cuBLAS needs a stride of 1 element, got shape {matrix.shape}, strides {matrix.strides} (bytes)")


def _turned(matrix: Any) -> Any:
    """Return the transpose of a matrix, or of each matrix of a batch, as a view."""
    axes = len(matrix.shape)
    return matrix.transpose(*range(axes - 2), axes - 1, axes - 2)
