"""cuBLAS through ctypes: its library is found, a thread gets a handle of its own, statuses are raised as errors.

CuPy's binding refuses to be recorded in a CUDA graph. A recording can't hold the library's own workspace either, so
each stream has one of ours. cublasSetStream puts the library's own back: stream and workspace are set together.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import POINTER, c_char_p, c_int, c_int64, c_longlong, c_size_t, c_void_p
from typing import Any

import numpy as np

from scaffe.devices.gpu import Gpu
from scaffe.errors import CublasError

# Values of the C API's enumerations.
N, T = 0, 1  # cublasOperation_t: as it is, transposed
FLOAT, BFLOAT16 = 0, 14  # cudaDataType_t: CUDA_R_32F, CUDA_R_16BF
COMPUTE_32F, COMPUTE_32F_FAST_16BF, COMPUTE_32F_FAST_TF32 = 68, 75, 77  # cublasComputeType_t; all add in float32
GEMM_DEFAULT = -1  # cublasGemmAlgo_t
WIDE_SUMS = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: partial sums are not rounded to the output's type

HOPPER = 90  # compute capability
WORKSPACE, WORKSPACE_OF_HOPPER = 4 << 20, 32 << 20  # bytes that the manual asks for in cublasSetWorkspace

_SIDE = [c_void_p, c_int, c_int64]  # a matrix: pointer, type, leading dimension
_SIDES = [*_SIDE, c_longlong]  # matrices: the elements from one to the next as well
_SIZES = [c_void_p, c_int, c_int, c_int64, c_int64, c_int64]  # handle, operations, m, n, k
FUNCTIONS: dict[str, list[Any]] = {
    "cublasCreate_v2": [POINTER(c_void_p)],
    "cublasSetMathMode": [c_void_p, c_int],
    "cublasSetStream_v2": [c_void_p, c_void_p],
    "cublasSetWorkspace_v2": [c_void_p, c_void_p, c_size_t],
    "cublasGemmEx_64": [*_SIZES, c_void_p, *_SIDE, *_SIDE, c_void_p, *_SIDE, c_int, c_int],
    "cublasGemmStridedBatchedEx_64": [
        *_SIZES, c_void_p, *_SIDES, *_SIDES, c_void_p, *_SIDES, c_int64, c_int, c_int,
    ],
}  # fmt: skip


class _Thread(threading.local):
    """A thread's handle, and the stream that it is set to; None before the first product."""

    handle: Any = None
    stream: int | None = None


class Cublas:
    """The library on one GPU. `library` has the functions above and cublasGetStatusName."""

    def __init__(self, library: Any, gpu: Gpu):
        self.gpu = gpu
        self._functions = {name: _typed(library, name, given) for name, given in FUNCTIONS.items()}
        self._name_of = library.cublasGetStatusName
        self._name_of.argtypes, self._name_of.restype = [c_int], c_char_p
        self._thread = _Thread()
        self._workspaces: dict[int, Any] = {}  # by stream, since the work of a stream is done in order

    def handle(self) -> Any:
        """Return the calling thread's handle, set to its current stream and that stream's workspace.

        A handle, and the workspace of a stream, are made when they are first asked for: before a recording.
        """
        stream, mine = int(self.gpu.xp.cuda.get_current_stream().ptr), self._thread
        if mine.handle is None:
            mine.handle = self._create()
        if mine.stream != stream:
            workspace = self._workspace(stream)
            self.call("cublasSetStream_v2", mine.handle, stream)
            self.call("cublasSetWorkspace_v2", mine.handle, self.gpu.place(workspace), workspace.nbytes)
            mine.stream = stream
        return mine.handle

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raise CublasError with the name of its status unless it succeeds."""
        status = self._functions[name](*arguments)
        if status:
            raise CublasError(f"{name}: {self._name_of(status).decode()}")

    def _create(self) -> Any:
        handle = c_void_p()
        self.call("cublasCreate_v2", ctypes.byref(handle))
        self.call("cublasSetMathMode", handle, WIDE_SUMS)
        return handle

    def _workspace(self, stream: int) -> Any:
        if stream not in self._workspaces:
            nbytes = WORKSPACE_OF_HOPPER if self.gpu.capability >= HOPPER else WORKSPACE
            self._workspaces[stream] = self.gpu.xp.empty(nbytes, np.uint8)
        return self._workspaces[stream]


def of(gpu: Gpu) -> Cublas:
    """Return the library on a GPU, loaded once. Raise CublasError, with what to install, where it can't be loaded."""
    if "cublas" not in gpu.libraries:
        gpu.libraries.setdefault("cublas", Cublas(_load(gpu), gpu))
    found: Cublas = gpu.libraries["cublas"]
    return found


def _load(gpu: Gpu) -> ctypes.CDLL:
    """Return the library that CuPy loads; another copy would be another version."""
    cuda = gpu.xp.cuda
    name = f"libcublas.so.{cuda.runtime.runtimeGetVersion() // 1000}"
    try:
        _ = cuda.cublas  # CuPy loads it here: from NVIDIA's packages, a toolkit or LD_LIBRARY_PATH
        return ctypes.CDLL(name)  # a library that is loaded is found by its name, wherever it lies
    except (ImportError, OSError, RuntimeError) as error:
        why = " ".join(str(error).split())
        raise CublasError(f"{name} can't be loaded: {why}; install it with pip install 'scaffe[cuda]'") from None


def _typed(library: Any, name: str, given: list[Any]) -> Any:
    function = getattr(library, name)
    function.argtypes, function.restype = given, c_int
    return function
