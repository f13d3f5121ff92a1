"""What a process group moves as it is, against plain torch on what all ranks bring."""

from __future__ import annotations

from itertools import product

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'scaffe[torch]'")
dist = torch.distributed

from torch_ranks import TYPES, all_brought, brought, rank, size  # noqa: E402

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.usefixtures("torch_group"),
]


def test_broadcast_copies_the_roots() -> None:
    for root, dtype in product(range(size()), TYPES):
        tensor = brought(rank(), 33, dtype)
        dist.broadcast(tensor, root)
        assert torch.equal(tensor, brought(root, 33, dtype))


@pytest.mark.parametrize("uneven", [False, True])
def test_all_gather_takes_uneven_lengths(uneven) -> None:
    lengths = [3 + (5 * by if uneven else 0) for by in range(size())]
    for dtype in TYPES:
        outputs = [torch.zeros(count, dtype=dtype) for count in lengths]
        dist.all_gather(outputs, brought(rank(), lengths[rank()], dtype))
        assert all(torch.equal(out, brought(by, lengths[by], dtype)) for by, out in enumerate(outputs)), dtype


def test_all_gather_single_reads_its_part_of_the_output_too() -> None:
    output = torch.zeros(size() * 5)
    dist.all_gather_into_tensor(output, brought(rank(), 5, torch.float32))
    assert torch.equal(output, torch.cat(all_brought(5, torch.float32)))
    within = torch.zeros(size(), 5)
    within[rank()] = brought(rank(), 5, torch.float32)
    dist.all_gather_into_tensor(within, within[rank()])
    assert torch.equal(within.flatten(), output)


def test_all_to_all_with_lengths_of_its_own() -> None:
    lengths = [[1 + one + 2 * other for other in range(size())] for one in range(size())]  # sender, receiver
    whole = [torch.arange(sum(row) * 2).reshape(-1, 2) + 100 * by for by, row in enumerate(lengths)]
    gets = [lengths[by][rank()] for by in range(size())]
    expected = [whole[by].split(lengths[by])[rank()] for by in range(size())]
    output = torch.zeros(sum(gets), 2, dtype=torch.int64)
    dist.all_to_all_single(output, whole[rank()], gets, lengths[rank()])
    assert torch.equal(output, torch.cat(expected))
    outputs = [torch.zeros(count, 2, dtype=torch.int64) for count in gets]
    dist.all_to_all(outputs, list(whole[rank()].split(lengths[rank()])))
    assert all(torch.equal(*pair) for pair in zip(outputs, expected, strict=True))
    even = torch.zeros(size())
    dist.all_to_all_single(even, torch.arange(float(size())) + 10 * rank())
    assert even.tolist() == [10 * by + rank() for by in range(size())]


def test_gather_and_scatter_take_uneven_lengths() -> None:
    for root in range(size()):
        lengths = [1 + 4 * by for by in range(size())]
        outputs = [torch.zeros(count) for count in lengths] if rank() == root else None
        dist.gather(brought(rank(), lengths[rank()], torch.float32), outputs, root)
        parts = [brought(by, lengths[by], torch.float32) for by in range(size())]
        assert outputs is None or all(torch.equal(*pair) for pair in zip(outputs, parts, strict=True))
        mine = torch.zeros(lengths[rank()])
        dist.scatter(mine, parts if rank() == root else None, root)
        assert torch.equal(mine, parts[rank()])


@pytest.mark.parametrize("longer", [False, True])
def test_lengths_that_are_not_the_senders_are_an_error_where_they_arrive(longer) -> None:
    odd, last = 6 if longer else 2, size() - 1
    ours = torch.ones(odd if rank() == last else 4)
    outputs = [torch.zeros(4) for _ in range(size())]

    def refused(arrives: bool, call, says: str) -> None:
        if arrives:
            with pytest.raises(dist.DistBackendError, match=says):
                call()
        else:
            call()

    brings = rf"rank {last} brings {4 * odd} bytes, expected 16"
    refused(rank() == 0, lambda: dist.gather(ours, outputs if rank() == 0 else None, 0), brings)
    parts = [torch.ones(4)] * size() if rank() == 0 else None
    refused(rank() == last, lambda: dist.scatter(ours, parts, 0), rf"rank 0 brings 16 bytes, expected {4 * odd}")
    refused(True, lambda: dist.all_to_all(outputs, [ours] * size()), brings)
    refused(
        rank() != last,
        lambda: dist.all_to_all_single(
            torch.zeros(4 * last + (odd if rank() == last else 4)), torch.cat([ours] * size()),
            [4] * last + [odd if rank() == last else 4],
        ),
        brings,
    )  # fmt: skip
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == size()
