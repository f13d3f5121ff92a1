"""Ranks of torch.distributed over the backend scaffe: their group, and what each brings to a collective."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

import collectives.torch  # noqa: F401  registers the backend
from collectives.progress import PROGRESS

OP = dist.ReduceOp
WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
TYPES = (*WHOLE, *FLOATS, torch.bool, torch.complex64)
JOINS = {OP.SUM: torch.add, OP.PRODUCT: torch.mul, OP.MIN: torch.minimum, OP.MAX: torch.maximum}
BITS = {OP.BAND: torch.bitwise_and, OP.BOR: torch.bitwise_or, OP.BXOR: torch.bitwise_xor}


@contextmanager
def process_group() -> Iterator[None]:
    """All ranks as torch.distributed's default group."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        dist.init_process_group("scaffe", timeout=timedelta(seconds=60))
        yield
        dist.destroy_process_group()
    PROGRESS.end_thread()  # which has no stream of a later test's device


def rank() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


def brought(by: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """What a rank brings: small whole numbers, whose sums and products are exact in all types."""
    numbers = (torch.arange(count) * 5 + 3 * by) % 4
    return numbers.to(dtype) if dtype is not torch.bool else numbers % 2 == 0


def all_brought(count: int, dtype: torch.dtype) -> list[torch.Tensor]:
    return [brought(by, count, dtype) for by in range(size())]


def joined(tensors: list[torch.Tensor], op: object) -> torch.Tensor:
    """Join tensors as plain torch does."""
    if tensors[0].dtype is torch.bool:
        stacked = torch.stack(tensors)
        return stacked.any(0) if op in (OP.SUM, OP.MAX) else stacked.all(0)
    total = tensors[0]
    for one in tensors[1:]:
        total = (JOINS | BITS)[op](total, one)
    return total
