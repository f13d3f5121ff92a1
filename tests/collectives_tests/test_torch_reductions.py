"""c10d's operations by our names."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'scaffe[torch]'")

from collectives.errors import ArgumentError  # noqa: E402
from collectives.torch.reductions import KINDS, NAMES, ReduceForm, reduction  # noqa: E402

OP = torch.distributed.ReduceOp


def test_every_operation_of_c10d_is_known() -> None:
    assert set(NAMES) == {*OP.RedOpType.__members__.values()} - {getattr(OP, "UNUSED", None)}


@pytest.mark.parametrize(
    ("kind", "dtype", "form"),
    [
        (KINDS.PRODUCT, torch.float32, ReduceForm("prod")),
        (KINDS.AVG, torch.float16, ReduceForm("mean")),
        (KINDS.AVG, torch.complex64, ReduceForm("mean")),
        (KINDS.AVG, torch.int32, ReduceForm("sum", divides=True)),
        (KINDS.SUM, torch.bool, ReduceForm("lor")),
        (KINDS.MIN, torch.bool, ReduceForm("land")),
        (KINDS.BXOR, torch.bool, ReduceForm("bxor")),
    ],
)
def test_forms(kind: object, dtype: torch.dtype, form: ReduceForm) -> None:
    assert reduction(kind, dtype) == form


def test_what_is_done_before_and_after() -> None:
    half = reduction(torch.distributed._make_nccl_premul_sum(0.5), torch.float32)
    given, sums = torch.tensor([3.0, -3.0]), torch.tensor([7, -7])
    half.before(given)
    half.after(given, 2)
    assert half.name == "sum" and given.tolist() == [1.5, -1.5]
    mean = reduction(KINDS.AVG, torch.int64)
    mean.before(sums)
    mean.after(sums, 2)
    assert sums.tolist() == [3, -3]  # towards zero
    with pytest.raises(ArgumentError, match="PREMUL_SUM needs numbers with a fraction, got torch.int64"):
        reduction(torch.distributed._make_nccl_premul_sum(0.5), torch.int64)
    with pytest.raises(ArgumentError, match="unknown operation 99; known are SUM, PRODUCT"):
        reduction.__globals__["_form"](99, torch.float32)
