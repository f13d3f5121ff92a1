"""Buffers: the objects whose memory a collective can use, as NumPy's or CuPy's arrays over that memory."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from collectives.errors import ArgumentError

HOST_DEVICES = 1, 3  # DLPack's: plain memory, and memory that CUDA has pinned
BFLOAT16 = "torch.bfloat16"


def as_array(name: str, given: Any) -> Any:
    """Return an array over the memory of an object, without a copy; `name` is the argument's, for errors.

    It takes NumPy's and CuPy's arrays as they are, and what has the buffer protocol, `__array_interface__`,
    `__cuda_array_interface__` or DLPack. Raise ArgumentError for anything else, such as a list.
    """
    if isinstance(given, np.ndarray):
        return given
    if isinstance(given, np.generic):
        raise ArgumentError(f"{name} must be a numpy array, got {named(given)}")
    if type(given).__module__.partition(".")[0] == "torch":
        return _of_torch(name, given)
    if hasattr(given, "__cuda_array_interface__"):
        return given if hasattr(given, "flags") else _on_gpu(name, given)
    if hasattr(given, "__array_interface__"):
        return np.asarray(given)
    if hasattr(given, "__dlpack__"):
        return _by_dlpack(name, given)
    try:
        return np.asarray(memoryview(given))
    except TypeError:
        raise ArgumentError(f"{name} must be a numpy array, got {named(given)}") from None


def named(given: object) -> str:
    """Return the type of an object in words."""
    return type(given).__name__


def _of_torch(name: str, tensor: Any) -> Any:
    """Return an array over a tensor's memory; bfloat16, which NumPy lacks, as ml_dtypes has it."""
    if tensor.is_cuda:
        return _on_gpu(name, tensor.detach())
    if not tensor.is_contiguous():
        raise ArgumentError(f"{name} must be contiguous, got a tensor of shape {tuple(tensor.shape)}")
    if str(tensor.dtype) != BFLOAT16:
        return tensor.detach().numpy()
    torch = sys.modules["torch"]  # which has made the tensor
    return tensor.detach().view(torch.int16).numpy().view(bfloat16(name))


def bfloat16(name: str) -> np.dtype:
    """Return NumPy's type of bfloat16. Raise ArgumentError without ml_dtypes."""
    try:
        import ml_dtypes
    except ImportError:
        raise ArgumentError(f"{name}: bfloat16 needs ml_dtypes: pip install 'scaffe[bfloat16]'") from None
    found: np.dtype = np.dtype(ml_dtypes.bfloat16)
    return found


def _by_dlpack(name: str, given: Any) -> Any:
    """Return an array over the memory of an object with DLPack."""
    if given.__dlpack_device__()[0] not in HOST_DEVICES:
        return _on_gpu(name, given)
    return np.from_dlpack(given)


def _on_gpu(name: str, given: Any) -> Any:
    """Return a CuPy array over an object's device memory. Raise ArgumentError without CuPy."""
    try:
        import cupy
    except ImportError:
        raise ArgumentError(f"{name} lies on a GPU: pip install 'scaffe[cuda]' has CuPy, which it needs") from None
    return cupy.asarray(given) if hasattr(given, "__cuda_array_interface__") else cupy.from_dlpack(given)
