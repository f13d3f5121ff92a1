"""Reductions: c10d's operations, by the names of `collectives`."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch.distributed import ReduceOp

from collectives.errors import ArgumentError

KINDS = ReduceOp.RedOpType
NAMES = {
    KINDS.SUM: "sum", KINDS.PRODUCT: "prod", KINDS.MIN: "min", KINDS.MAX: "max", KINDS.AVG: "mean",
    KINDS.BAND: "band", KINDS.BOR: "bor", KINDS.BXOR: "bxor", KINDS.PREMUL_SUM: "sum",
}  # fmt: skip
OF_BOOL = {KINDS.SUM: "lor", KINDS.PRODUCT: "land", KINDS.MIN: "land", KINDS.MAX: "lor"}


class ReduceForm(NamedTuple):
    """An operation of `collectives`, and what is done beside it: a factor before, a division by the ranks after."""

    name: str
    factor: Any = None
    divides: bool = False

    def before(self, tensor: torch.Tensor) -> None:
        """Multiply a contribution, in place."""
        if self.factor is not None:
            tensor.mul_(self.factor)

    def after(self, tensor: torch.Tensor, ranks: int) -> None:
        """Divide a sum of integers by the number of ranks, in place, rounded towards zero."""
        if self.divides:
            tensor.div_(ranks, rounding_mode="trunc")


def reduction(op: Any, dtype: torch.dtype) -> ReduceForm:
    """Return the form of c10d's operation `op` for elements of a type. Raise ArgumentError for one that it lacks."""
    kind, factor = (op, None) if isinstance(op, KINDS) else op.__getstate__()
    found = _form(kind, dtype)
    if factor is not None and not (dtype.is_floating_point or dtype.is_complex):
        raise ArgumentError(f"PREMUL_SUM needs numbers with a fraction, got {dtype}")
    return found if factor is None else found._replace(factor=factor)


@cache
def _form(kind: Any, dtype: torch.dtype) -> ReduceForm:
    """Return the form of an operation without its factor."""
    names = NAMES | OF_BOOL if dtype is torch.bool else NAMES
    if kind not in names:
        raise ArgumentError(f"unknown operation {kind}; known are {', '.join(one.name for one in NAMES)}")
    if kind == KINDS.AVG and not (dtype.is_floating_point or dtype.is_complex):
        return ReduceForm("sum", divides=True)
    return ReduceForm(names[kind])
