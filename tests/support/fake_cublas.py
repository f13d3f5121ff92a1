"""A stand-in for cuBLAS as CuPy has it: exactly the calls that scaffe makes, on this machine's memory.

Not its speed, nor the order of its sums. Each number is rounded as the kind of product says, sums are float32.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
from recorded import act

CUDA_R_32F = 0
CUBLAS_OP_N, CUBLAS_OP_T = 0, 1
CUBLAS_GEMM_DEFAULT = -1
CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_16BF, CUBLAS_COMPUTE_32F_FAST_TF32 = 68, 75, 77
MANTISSA = {CUBLAS_COMPUTE_32F: 23, CUBLAS_COMPUTE_32F_FAST_TF32: 10, CUBLAS_COMPUTE_32F_FAST_16BF: 7}  # bits
HANDLE = 1234


def rounded(values, bits):
    """Return float32 values with so many bits of mantissa, halves to even."""
    drop = 23 - bits
    if not drop:
        return values
    words = np.ascontiguousarray(values).view(np.uint32)
    half = ((words >> np.uint32(drop)) & np.uint32(1)) + np.uint32((1 << (drop - 1)) - 1)
    return ((words + half) >> np.uint32(drop) << np.uint32(drop)).view(np.float32)


def matrix(pointer, rows, columns, step):
    """Return the matrix of float32 at a pointer whose columns lie `step` numbers apart, as it lies by rows."""
    assert step >= max(1, rows), f"leading dimension {step} of {rows} rows"
    count = step * (columns - 1) + rows
    memory = np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (count,))
    return np.lib.stride_tricks.as_strided(memory, (columns, rows), (4 * step, 4))


def number(pointer):
    return ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float))[0]


def gemmEx(handle, op_a, op_b, m, n, k, alpha, a, type_a, ld_a, b, type_b, ld_b, beta, c, type_c, ld_c, kind, algo):
    """Compute c = alpha op(a) op(b) + beta c, all of them stored by columns."""
    assert handle == HANDLE and algo == CUBLAS_GEMM_DEFAULT and number(alpha) == 1
    assert type_a == type_b == type_c == CUDA_R_32F
    sides = []
    for pointer, rows, columns, op, step in ((a, m, k, op_a, ld_a), (b, k, n, op_b, ld_b)):
        stored = matrix(pointer, *((columns, rows) if op else (rows, columns)), step)
        sides.append(stored.T if op else stored)
    out, keep = matrix(c, m, n, ld_c), number(beta)

    def multiply():
        product = np.matmul(*(rounded(side, MANTISSA[kind]) for side in reversed(sides)))
        out[...] = out * keep + product if keep else product

    act([out], multiply)


def gemmStridedBatchedEx(
    handle, op_a, op_b, m, n, k, alpha, a, type_a, ld_a, step_a, b, type_b, ld_b, step_b, beta, c, type_c, ld_c, step_c,
    count, kind, algo,
):  # fmt: skip
    """Compute so many products, each so many numbers behind the one before."""
    for i in range(count):
        sides = (a + 4 * i * step_a, type_a, ld_a), (b + 4 * i * step_b, type_b, ld_b)
        out = c + 4 * i * step_c, type_c, ld_c
        gemmEx(handle, op_a, op_b, m, n, k, alpha, *sides[0], *sides[1], beta, *out, kind, algo)


cublas = SimpleNamespace(
    gemmEx=gemmEx,
    gemmStridedBatchedEx=gemmStridedBatchedEx,
    **{name: value for name, value in globals().items() if name.startswith("CUBLAS_")},
)
cuda = SimpleNamespace(
    cublas=cublas,
    device=SimpleNamespace(get_cublas_handle=lambda: HANDLE),
)
