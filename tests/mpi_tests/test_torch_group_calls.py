"""The calls of a process group: their order, their ends and their errors, which all ranks have."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'scaffe[torch]'")
dist = torch.distributed

from torch_ranks import OP, all_brought, brought, joined, rank, size  # noqa: E402

import collectives.torch  # noqa: E402

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.usefixtures("torch_group"),
]


def test_a_future_that_is_asked_for_late_has_its_value() -> None:
    work = dist.all_reduce(torch.ones(2), async_op=True)
    work.wait()
    future = work.get_future()
    assert future.done() and future.value()[0].tolist() == [size()] * 2


def test_works_end_in_the_order_of_calls_whatever_is_waited_for_first() -> None:
    tensors = [brought(rank(), count, torch.float32) for count in (1, 100, 50_000, 3)]
    works = [dist.all_reduce(one, async_op=True) for one in tensors]
    futures = [work.get_future() for work in works]
    for work in reversed(works) if rank() else works:
        work.wait()
        assert work.is_completed() and work.is_success() and work.exception() is None
    for one, future in zip(tensors, futures, strict=True):
        assert torch.equal(one, joined(all_brought(one.numel(), torch.float32), OP.SUM))
        assert future.wait()[0] is one or torch.equal(future.wait()[0], one)
    doubled = dist.all_reduce(torch.ones(2), async_op=True).get_future().then(lambda done: 2 * done.value()[0])
    assert doubled.wait().tolist() == [2.0 * size()] * 2


def test_a_collective_may_begin_before_a_message_that_another_rank_waits_for() -> None:
    tensor = torch.ones(5)
    if rank() == 0:
        work = dist.all_reduce(tensor, async_op=True)
        for other in range(1, size()):
            dist.send(torch.ones(1), other)
        work.wait()
    else:
        dist.recv(torch.zeros(1), 0)
        dist.all_reduce(tensor)
    assert tensor.tolist() == [size()] * 5


def test_coalesced_collectives() -> None:
    tensors = [brought(rank(), count, torch.float32) for count in (3, 8)]
    with dist._coalescing_manager():
        for one in tensors:
            dist.all_reduce(one)
    assert all(torch.equal(one, joined(all_brought(one.numel(), torch.float32), OP.SUM)) for one in tensors)
    lists = [[torch.zeros(count) for count in (2, 3, 4, 5)] for _ in range(size())]
    dist.all_gather_coalesced(lists, [brought(rank(), count, torch.float32) for count in (2, 3, 4, 5)])
    for by, parts in enumerate(lists):
        assert all(torch.equal(one, brought(by, one.numel(), torch.float32)) for one in parts)
    outputs = [torch.zeros(size() * 2), torch.zeros(size())]
    with dist._coalescing_manager(async_ops=True) as manager:
        for out in outputs:
            dist.all_gather_into_tensor(out, brought(rank(), out.numel() // size(), torch.float32))
    manager.wait()
    assert all(torch.equal(out, torch.cat(all_brought(out.numel() // size(), torch.float32))) for out in outputs)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: dist.all_reduce(torch.zeros(2), OP.BAND), "band"),
        (lambda: dist.all_reduce(torch.zeros(2000 + rank())), "differ"),
        (
            lambda: dist.all_to_all_single(torch.zeros(size()), torch.zeros(size()), [1] * size(), [9] * size()),
            "splits",
        ),
        (lambda: dist.all_gather([torch.zeros(3)] * size(), torch.zeros(2)), "expected 3"),
        (lambda: dist.reduce_scatter_tensor(torch.zeros(3), torch.zeros(2)), "expected"),
        (
            lambda: dist.all_reduce(torch.zeros(2, dtype=torch.int32), dist._make_nccl_premul_sum(0.5)),
            "PREMUL_SUM needs",
        ),
        (lambda: dist.all_reduce(torch.ones(1).expand(4)), "share memory"),
        (lambda: dist.broadcast(torch.ones(3, device="meta"), 0), "device meta"),
        (lambda: dist.all_reduce(torch.ones(3).to(torch.float8_e4m3fn)), "no arithmetic of torch.float8_e4m3fn"),
        (
            lambda: dist.all_to_all_single(
                torch.zeros(size()), torch.zeros(size()), [-1, size() + 1, *[0] * (size() - 2)], [1] * size()
            ),
            "output splits",
        ),
        (  # on one rank alone
            lambda: dist.all_to_all([torch.zeros(1)] * size(), [torch.zeros(1)] * (size() - (rank() == 1))),
            "1 input tensors for 2 ranks|2 input tensors for 3 ranks|rank 1 can't do it",
        ),
        (
            lambda: dist.scatter(torch.zeros(2), [torch.zeros(2)] * (size() + 1) if rank() == 0 else None, 0),
            "input tensors for|rank 0 can't do it",
        ),
    ],
)
def test_a_mistake_is_an_error_on_all_ranks_and_the_group_goes_on(call, says) -> None:
    with pytest.raises(dist.DistBackendError, match=says):
        call()
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == size()


def test_a_destroyed_group_says_so() -> None:
    group = dist.new_group()
    dist.destroy_process_group(group)
    for call in (
        lambda: group.allreduce([torch.ones(1)]),
        lambda: group.send([torch.ones(1)], 0, 0),
        lambda: collectives.torch.monitored_barrier(group),
    ):
        with pytest.raises(dist.DistBackendError, match="can't be used any more: it was destroyed"):
            call()
