"""The sums of torch.distributed over the backend scaffe, against plain torch on what all ranks bring."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'scaffe[torch]'")
dist = torch.distributed

from torch_ranks import BITS, FLOATS, JOINS, OP, TYPES, WHOLE, all_brought, brought, joined, rank, size  # noqa: E402

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.usefixtures("torch_group"),
]
LENGTHS = (0, 1, 7, 3001)


@pytest.mark.parametrize("op", JOINS, ids=str)
def test_all_reduce_joins_as_torch_does(op) -> None:
    for dtype in TYPES:
        if dtype.is_complex and op != OP.SUM:  # torch.distributed has the sum of complex numbers alone
            continue
        for count in LENGTHS:
            tensor = brought(rank(), count, dtype)
            dist.all_reduce(tensor, op)
            assert torch.equal(tensor, joined(all_brought(count, dtype), op)), (dtype, count)


@pytest.mark.parametrize("op", BITS, ids=str)
def test_all_reduce_joins_bits(op) -> None:
    for dtype in (*WHOLE, torch.bool):
        tensor = brought(rank(), 101, dtype)
        dist.all_reduce(tensor, op)
        found = torch.stack(all_brought(101, dtype)).to(torch.int64)
        expected = found[0]
        for one in found[1:]:
            expected = BITS[op](expected, one)
        assert torch.equal(tensor, expected.to(dtype)), dtype


def test_the_mean_of_integers_is_rounded_towards_zero() -> None:
    for dtype in (*WHOLE, *FLOATS):
        tensor = brought(rank(), 50, dtype)
        dist.all_reduce(tensor, OP.AVG)
        total = torch.stack(all_brought(50, torch.float64)).sum(0) / size()
        expected = total.trunc().to(dtype) if dtype in WHOLE else total
        torch.testing.assert_close(tensor, expected.to(dtype))

    negative = torch.full((3,), -1 if rank() else 0, dtype=torch.int32)  # a mean between -1 and 0
    dist.all_reduce(negative, OP.AVG)
    assert negative.tolist() == [0] * 3


def test_a_premultiplied_sum_scales_what_each_rank_brings() -> None:
    count, half = 3 * size(), dist._make_nccl_premul_sum(0.5)
    given = brought(rank(), count, torch.float32)
    total = 0.5 * torch.stack(all_brought(count, torch.float32)).sum(0)
    tensor = given.clone()
    dist.all_reduce(tensor, half)
    assert torch.equal(tensor, total)
    tensor, last = given.clone(), size() - 1
    dist.reduce(tensor, last, half)
    assert torch.equal(tensor, total if rank() == last else given)
    part, contribution = torch.zeros(3), given.clone()
    dist.reduce_scatter_tensor(part, contribution, half)
    assert torch.equal(part, total.chunk(size())[rank()]) and torch.equal(contribution, given)


def strided(values: torch.Tensor) -> torch.Tensor:
    """The same values as every second element of a longer tensor."""
    return torch.stack([values, values], dim=-1)[..., 0]


@pytest.mark.parametrize("layout", [strided, lambda t: t.t(), lambda t: t[None, ..., None].permute(0, 3, 1, 2)])
def test_tensors_of_any_layout_are_taken(layout) -> None:
    values = brought(rank(), 24, torch.float32).reshape(4, 6)
    tensor = layout(values.clone())
    dist.all_reduce(tensor)
    total = torch.stack([layout(one.reshape(4, 6)) for one in all_brought(24, torch.float32)]).sum(0)
    assert torch.equal(tensor, total)
    out = layout(torch.zeros(4, 6))
    dist.broadcast(tensor if rank() == 0 else out, 0)
    assert torch.equal(tensor if rank() == 0 else out, total)


def test_only_the_root_of_a_reduce_has_the_result() -> None:
    for root in range(size()):
        for dtype in (torch.float32, torch.int64, torch.bfloat16):
            tensor = brought(rank(), 13, dtype)
            dist.reduce(tensor, root)
            expected = joined(all_brought(13, dtype), OP.SUM) if rank() == root else brought(rank(), 13, dtype)
            assert torch.equal(tensor, expected)


def test_a_reduce_takes_means_of_integers_and_any_layout() -> None:
    for root in range(size()):
        tensor = brought(rank(), 24, torch.int32).reshape(6, 4).t()
        dist.reduce(tensor, root, OP.AVG)
        mean = torch.stack(all_brought(24, torch.float64)).mean(0).trunc().to(torch.int32)
        assert torch.equal(tensor.t().flatten(), mean if rank() == root else brought(rank(), 24, torch.int32))


def test_negated_views_are_taken_as_what_they_mean() -> None:
    plain = torch.full((3,), complex(rank() + 1, 2))
    view = plain.conj().imag  # -2, over memory that has 2
    assert view.is_neg()
    dist.all_reduce(view)
    assert view.tolist() == [-2.0 * size()] * 3
    assert plain.imag.tolist() == [2.0 * size()] * 3


def test_outputs_may_lie_in_the_inputs() -> None:
    tensor = torch.arange(2.0 * size()) + 100 * rank()
    part = tensor[2 * rank() : 2 * rank() + 2]
    expected = sum(torch.arange(2.0 * size()) + 100 * by for by in range(size())).chunk(size())[rank()]
    dist.reduce_scatter_tensor(part, tensor)
    assert torch.equal(part, expected)
    tensor = torch.arange(float(size())) + 10 * rank()
    dist.all_to_all_single(tensor, tensor)
    assert tensor.tolist() == [10 * by + rank() for by in range(size())]


@pytest.mark.parametrize(
    ("op", "dtype"), [(OP.SUM, torch.float32), (OP.MAX, torch.bfloat16), (OP.AVG, torch.float32), (OP.AVG, torch.int32)]
)
def test_reduce_scatter_gives_each_rank_its_part(op, dtype) -> None:
    lengths = [2 + 3 * by for by in range(size())]
    inputs = list(brought(rank(), sum(lengths), dtype).split(lengths))
    whole = torch.stack(all_brought(sum(lengths), torch.float64))
    total = {OP.SUM: whole.sum(0), OP.MAX: whole.amax(0), OP.AVG: whole.mean(0)}[op]
    output = torch.zeros(lengths[rank()], dtype=dtype)
    dist.reduce_scatter(output, inputs, op)
    expected = total if dtype.is_floating_point else total.trunc()
    torch.testing.assert_close(output, expected.split(lengths)[rank()].to(dtype))
    single = torch.zeros(4, dtype=dtype)
    dist.reduce_scatter_tensor(single, brought(rank(), 4 * size(), dtype))
    assert torch.equal(single, joined(all_brought(4 * size(), dtype), OP.SUM).chunk(size())[rank()])
