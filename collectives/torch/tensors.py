"""Tensors as the arrays that a collective takes: contiguous, in host memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from collectives.buffers import as_array
from collectives.errors import ArgumentError


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's values, contiguous in host memory: itself where it is so, else a copy."""
    if tensor.layout is not torch.strided:
        raise ArgumentError(f"expected a dense tensor, got one of layout {tensor.layout}; call to_dense() first")
    if tensor.is_meta:
        raise ArgumentError("expected a tensor with data, got one on the device meta")
    return tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()


@contextlib.contextmanager
def landing(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield a contiguous tensor in host memory with a tensor's values; what it has at the end is copied back."""
    if not tensor.is_contiguous() and any(
        n > 1 and not step for n, step in zip(tensor.shape, tensor.stride(), strict=True)
    ):
        raise ArgumentError(
            "can't write to a tensor whose elements share memory, as expand() returns; clone() it first"
        )
    room = on_host(tensor)
    yield room
    copy_back(room, tensor)


def copy_back(room: torch.Tensor, tensor: torch.Tensor) -> None:
    """Copy a result to its tensor, unless it is there."""
    if room.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(room)


def flat(tensor: torch.Tensor) -> np.ndarray:
    """Return an array of the elements of a contiguous tensor in host memory.

    A short one is the same object as the last time, so that a Communicator knows its call. It keeps its memory, so that
    no other tensor gets the address.
    """
    key = tensor.data_ptr(), tensor.numel(), tensor.dtype
    array: np.ndarray | None = SHORT.get(key)
    if array is None:
        try:
            array = as_array("tensor", tensor.reshape(-1))
        except TypeError:
            raise ArgumentError(f"there is no arithmetic of {tensor.dtype}") from None
        if 0 < array.nbytes <= SHORTEST_LONG:
            if len(SHORT) == MOST_SHORT:
                SHORT.clear()
            SHORT[key] = array
    return array


SHORT: dict[tuple[int, int, torch.dtype], np.ndarray] = {}
MOST_SHORT, SHORTEST_LONG = 64, 1 << 16  # arrays, bytes


def as_bytes(tensor: torch.Tensor) -> np.ndarray:
    """Return an array of the bytes of a contiguous tensor in host memory."""
    array: np.ndarray = tensor.reshape(-1).view(torch.uint8).numpy()
    return array


def nbytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor's elements."""
    return int(tensor.numel() * tensor.element_size())


def joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return a copy of the elements of several tensors of one type, side by side."""
    return torch.cat([on_host(one).reshape(-1) for one in tensors])


def spread(elements: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """Copy elements, side by side, into several tensors; bytes become numbers of the tensors' types."""
    start = 0
    for tensor in tensors:
        size = nbytes(tensor) if elements.dtype is torch.uint8 else tensor.numel()
        part = elements[start : start + size]
        part = part.clone().view(tensor.dtype) if part.dtype != tensor.dtype else part
        tensor.detach().copy_(part.view(tensor.shape))
        start += size


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors share storage."""
    return bool(one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()) and nbytes(one) > 0


def one_of(given: Any) -> list[torch.Tensor]:
    """Return the tensors of a list, or of one."""
    return [given] if isinstance(given, torch.Tensor) else list(given)


def check_same(what: str, name: str, one: torch.Tensor, other: torch.Tensor, sizes: bool = True) -> None:
    """Raise ArgumentError for two tensors of different types, or with `sizes` of different lengths."""
    if one.dtype != other.dtype:
        raise ArgumentError(f"{what}: {name} is of {one.dtype}, expected {other.dtype}")
    if sizes and one.numel() != other.numel():
        raise ArgumentError(f"{what}: {name} has {one.numel()} elements, expected {other.numel()}")
