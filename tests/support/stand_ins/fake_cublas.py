"""A stand-in for libcublas, in this machine's memory: exactly the functions that scaffe calls, refusals included.

Not its speed, nor the order of its sums. Factors are rounded as the compute type says, sums are float32. It refuses
what would go wrong on a GPU: another thread's handle, a stream that is not the current one, a recording in the
library's own workspace, and a handle that is made while the stream records.
"""

from __future__ import annotations

import ctypes
import threading

import numpy as np
from recorded import Stream, act, owner, recording

SUCCESS, INVALID_VALUE, NOT_SUPPORTED = 0, 7, 15
NAMES = {INVALID_VALUE: b"CUBLAS_STATUS_INVALID_VALUE", NOT_SUPPORTED: b"CUBLAS_STATUS_NOT_SUPPORTED"}
FLOAT, BFLOAT16 = 0, 14
TYPES = {FLOAT: np.dtype(np.float32), BFLOAT16: np.dtype(np.uint16)}
MANTISSA = {68: 23, 77: 10, 75: 7}  # bits of float32 factors by compute type: 32F, FAST_TF32, FAST_16BF
GEMM_DEFAULT, WIDE_SUMS = -1, 16
LEAST = 4 << 20  # bytes of a workspace


def rounded(values, bits):
    """Return float32 values with so many bits of mantissa, halves to even."""
    drop = 23 - bits
    if not drop:
        return values
    words = np.ascontiguousarray(values).view(np.uint32)
    half = ((words >> np.uint32(drop)) & np.uint32(1)) + np.uint32((1 << (drop - 1)) - 1)
    return ((words + half) >> np.uint32(drop) << np.uint32(drop)).view(np.float32)


def widened(values):
    """Return bfloat16 numbers, given as their bits, or float32 ones, as float32."""
    return (values.astype(np.uint32) << 16).view(np.float32) if values.dtype == np.uint16 else values


def narrowed(values, dtype):
    """Return float32 numbers in a type, bfloat16 as its bits."""
    return (rounded(values, 7).view(np.uint32) >> 16).astype(np.uint16) if dtype == np.uint16 else values


def lying(pointer, dtype, rows, columns, leading):
    """Return the matrix at a pointer whose columns lie `leading` elements apart, as it lies by rows: transposed."""
    assert leading >= max(1, rows), f"leading dimension {leading} of {rows} rows"
    nbytes = (leading * (columns - 1) + rows) * dtype.itemsize
    memory = np.frombuffer((ctypes.c_uint8 * nbytes).from_address(pointer), dtype)
    return np.lib.stride_tricks.as_strided(memory, (columns, rows), (leading * dtype.itemsize, dtype.itemsize))


class Function:
    """A function of the library: its arguments are converted as ctypes converts them."""

    def __init__(self, function):
        self.function, self.argtypes, self.restype = function, None, None

    def __call__(self, *given):
        assert len(given) == len(self.argtypes)
        return self.function(*[_converted(kind, one) for kind, one in zip(self.argtypes, given, strict=True)])


def _converted(kind, value):
    if isinstance(value, kind) or not hasattr(kind, "value"):
        return getattr(value, "value", value)
    number = kind(value).value
    assert (number or 0) == value, f"{value} is no {kind.__name__}"
    return number


class Handle:
    """What cuBLAS knows of a handle."""

    def __init__(self):
        self.thread, self.mode, self.stream, self.workspace = threading.get_ident(), 0, None, None


class FakeCublas:
    """The library. `calls` are the names of what was called; `refuses`, if set, is the status of every product."""

    def __init__(self):
        self.handles, self.calls, self.refuses = {}, [], SUCCESS
        for name in [one for one in dir(self) if one.startswith("_cublas")]:
            setattr(self, name[1:], Function(getattr(self, name)))

    def _cublasGetStatusName(self, status):
        return NAMES[status]

    def _cublasCreate_v2(self, place):
        assert recording() is None, "cublasCreate takes memory, which a stream that records refuses"
        number = 0x1000 + len(self.handles)
        self.handles[number] = Handle()
        place._obj.value = number
        return SUCCESS

    def _cublasSetMathMode(self, handle, mode):
        self._mine(handle).mode = mode
        return SUCCESS

    def _cublasSetStream_v2(self, handle, stream):
        mine = self._mine(handle)
        mine.stream, mine.workspace = stream or 0, None  # the library's own again
        return SUCCESS

    def _cublasSetWorkspace_v2(self, handle, pointer, nbytes):
        memory = owner(pointer)
        assert LEAST <= nbytes <= memory.ctypes.data + memory.nbytes - pointer
        self._mine(handle).workspace = pointer
        return SUCCESS

    def _cublasGemmEx_64(
        self, handle, op_a, op_b, m, n, k, alpha, a, type_a, ld_a, b, type_b, ld_b, beta, c, type_c, ld_c, kind, algo
    ):
        steps = (a, type_a, ld_a, 0), (b, type_b, ld_b, 0), (c, type_c, ld_c, 0)
        return self._products("cublasGemmEx", handle, (op_a, op_b), (m, n, k), alpha, beta, steps, 1, kind, algo)

    def _cublasGemmStridedBatchedEx_64(
        self, handle, op_a, op_b, m, n, k, alpha, a, type_a, ld_a, step_a, b, type_b, ld_b, step_b,
        beta, c, type_c, ld_c, step_c, count, kind, algo,
    ):  # fmt: skip
        steps = (a, type_a, ld_a, step_a), (b, type_b, ld_b, step_b), (c, type_c, ld_c, step_c)
        name = "cublasGemmStridedBatchedEx"
        return self._products(name, handle, (op_a, op_b), (m, n, k), alpha, beta, steps, count, kind, algo)

    def _mine(self, handle):
        """Return a handle, which one thread alone may use."""
        mine = self.handles[handle]
        assert mine.thread == threading.get_ident(), "a handle of another thread"
        return mine

    def _products(self, name, handle, ops, sizes, alpha, beta, steps, count, kind, algo):
        """Compute c = op(a) op(b) + beta c of each of `count`, all of them stored by columns."""
        mine = self._mine(handle)
        assert mine.stream == Stream.current().ptr, "the handle is set to another stream than the current one"
        assert mine.workspace is not None, "the library's own workspace, which a recording can't hold"
        assert mine.mode == WIDE_SUMS and algo == GEMM_DEFAULT and _number(alpha) == 1
        self.calls.append(name)
        if self.refuses:
            return self.refuses
        types = [TYPES[one] for _, one, *_ in steps]
        if types[0] != types[1] or types[2] not in (np.float32, types[0]) or (types[0] == np.uint16 and kind != 68):
            return NOT_SUPPORTED
        for i in range(count):
            pairs = zip(steps, types, strict=True)
            sides = [(at + i * step * dtype.itemsize, dtype, leading) for (at, _, leading, step), dtype in pairs]
            _multiply(sides, ops, sizes, _number(beta), MANTISSA[kind])
        return SUCCESS


def _multiply(sides, ops, sizes, keep, bits):
    """Put one product on the stream."""
    m, n, k = sizes
    factors = []
    for (pointer, dtype, leading), rows, columns, op in ((sides[0], m, k, ops[0]), (sides[1], k, n, ops[1])):
        stored = lying(pointer, dtype, *((columns, rows) if op else (rows, columns)), leading)
        factors.append(stored.T if op else stored)
    out = lying(sides[2][0], sides[2][1], m, n, sides[2][2])
    kept = [owner(pointer) for pointer, *_ in sides]

    def multiply(kept=kept):
        product = np.matmul(*(rounded(widened(side), bits) for side in reversed(factors)))
        out[...] = narrowed(widened(out) * keep + product if keep else product, out.dtype)

    act([out], multiply)


def _number(pointer):
    return ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float))[0]
