"""Blocks: the parts of tensors that the ranks bring and get, in bytes, and checks of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch

from collectives.errors import ArgumentError
from collectives.torch.tensors import check_same, nbytes

MISTAKE = -1  # in place of a length: that rank can't do the call


def uneven(counts: Sequence[int]) -> Sequence[int] | None:
    """Return counts, None where all are equal."""
    return counts if len(set(counts)) > 1 else None


def blocks(tensors: Sequence[torch.Tensor]) -> tuple[list[int], list[int]]:
    """Return the bytes of tensors that lie side by side, and where they begin."""
    return placed([nbytes(one) for one in tensors])


def placed(counts: list[int]) -> tuple[list[int], list[int]]:
    """Return lengths, and where blocks of these lengths begin."""
    return counts, [0, *accumulate(counts)][:-1]


def split_blocks(name: str, tensor: torch.Tensor, splits: Any, ranks: int) -> tuple[list[int], list[int]]:
    """Return the bytes of a tensor's parts along dimension 0, and where they begin. Raise ArgumentError."""
    rows = tensor.shape[0] if tensor.dim() else tensor.numel()
    splits = list(splits or [])
    if not splits:
        if rows % ranks:
            raise ArgumentError(f"all_to_all_single: the {name} has {rows} rows, no multiple of {ranks} ranks")
        splits = [rows // ranks] * ranks
    if len(splits) != ranks or sum(splits) != rows or min(splits) < 0:
        raise ArgumentError(f"all_to_all_single: {name} splits {splits} for {ranks} ranks and {rows} rows")
    row = nbytes(tensor) // rows if rows else 0
    return placed([row * split for split in splits])


def check_number(what: str, name: str, tensors: Sequence[Any], ranks: int) -> None:
    """Raise ArgumentError unless there is a tensor for each rank."""
    if len(tensors) != ranks:
        raise ArgumentError(f"{what}: {len(tensors)} {name} for {ranks} ranks")


def check_parts(what: str, name: str, whole: torch.Tensor, part: torch.Tensor, ranks: int) -> None:
    """Raise ArgumentError unless a tensor is as long as all ranks' parts."""
    check_same(what, name, whole, part, sizes=False)
    if whole.numel() != ranks * part.numel():
        raise ArgumentError(f"{what}: {name} has {whole.numel()} elements, expected {ranks} x {part.numel()}")


def share_mistake(what: str, brought: Mapping[int, int], error: Exception | None) -> None:
    """Raise this rank's error, or ArgumentError where another says that it has one."""
    if error is not None:
        raise error
    if bad := [rank for rank, length in brought.items() if length == MISTAKE]:
        raise ArgumentError(f"{what}: rank {bad[0]} can't do it; its error says why")


def check_lengths(what: str, brought: Mapping[int, int], rooms: Sequence[int]) -> None:
    """Raise ArgumentError where ranks bring other lengths, in bytes, than this one has room for."""
    for (rank, length), room in zip(brought.items(), rooms, strict=True):
        if length != room:
            raise ArgumentError(f"{what}: rank {rank} brings {length} bytes, expected {room}")
