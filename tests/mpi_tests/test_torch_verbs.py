"""The verbs of torch.distributed over the backend scaffe, against plain torch on what all ranks bring."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from datetime import timedelta
from itertools import product

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'scaffe[torch]'")
dist = torch.distributed

import collectives.torch  # noqa: E402
from collectives.progress import PROGRESS  # noqa: E402
from collectives.torch.reductions import NAMES  # noqa: E402

pytestmark = [pytest.mark.mpi, pytest.mark.filterwarnings("ignore::FutureWarning")]

OP = dist.ReduceOp
WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
TYPES = (*WHOLE, *FLOATS, torch.bool, torch.complex64)
LENGTHS = (0, 1, 7, 3001)
JOINS = {OP.SUM: torch.add, OP.PRODUCT: torch.mul, OP.MIN: torch.minimum, OP.MAX: torch.maximum}
BITS = {OP.BAND: torch.bitwise_and, OP.BOR: torch.bitwise_or, OP.BXOR: torch.bitwise_xor}


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
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


def test_every_operation_of_c10d_is_known() -> None:
    assert set(NAMES) == {*OP.RedOpType.__members__.values()} - {getattr(OP, "UNUSED", None)}


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


def test_messages_go_round_by_every_call() -> None:
    after, before = (rank() + 1) % size(), (rank() - 1) % size()
    got = torch.zeros(3, 2).t()
    works = [dist.isend(torch.full((2, 3), float(rank())), after, tag=5), dist.irecv(got, before, tag=5)]
    for work in works:
        work.wait()
    assert torch.equal(got, torch.full((2, 3), float(before)))
    far = torch.zeros(200_000)
    ops = [dist.P2POp(dist.isend, torch.full((200_000,), float(rank())), after), dist.P2POp(dist.irecv, far, before)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert far.eq(before).all()
    if rank() == 0:
        senders = {dist.recv(torch.zeros(1)) for _ in range(size() - 1)}
        assert senders == set(range(1, size()))
    else:
        dist.send(torch.ones(1), 0)


def test_messages_are_told_apart_by_tags() -> None:
    after, before = (rank() + 1) % size(), (rank() - 1) % size()
    sent = [dist.isend(torch.tensor([float(tag)]), after, tag=tag) for tag in (1, 2)]
    for tag in (2, 1):
        got = torch.zeros(1)
        dist.recv(got, before, tag=tag)
        assert got.item() == tag
    for work in sent:
        work.wait()


def test_a_future_that_is_asked_for_late_has_its_value() -> None:
    work = dist.all_reduce(torch.ones(2), async_op=True)
    work.wait()
    future = work.get_future()
    assert future.done() and future.value()[0].tolist() == [size()] * 2


def test_objects_travel() -> None:
    found: list[object] = [None] * size()
    dist.all_gather_object(found, {"rank": rank(), "text": "x" * rank()})
    assert found == [{"rank": by, "text": "x" * by} for by in range(size())]
    objects: list[object] = [("a", rank())] * 2
    dist.broadcast_object_list(objects, src=size() - 1)
    assert objects == [("a", size() - 1)] * 2
    gathered = [None] * size() if rank() == 0 else None
    dist.gather_object(rank(), gathered)
    assert gathered in (None, list(range(size())))
    mine: list[object] = [None]
    dist.scatter_object_list(mine, list("abcdefg"[: size()]) if rank() == 0 else None)
    assert mine == ["abcdefg"[rank()]]


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


def test_groups_of_some_ranks() -> None:
    groups = [dist.new_group([by, (by + 1) % size()]) for by in range(size())]
    for by, group in enumerate(groups):
        members = dist.get_process_group_ranks(group) if rank() in (by, (by + 1) % size()) else []
        tensor = torch.tensor([float(rank())])
        if members:
            dist.all_reduce(tensor, group=group)
            assert tensor.item() == sum(members)
            dist.broadcast(tensor.fill_(rank()), members[-1], group=group)
            assert tensor.item() == members[-1]
    mine, _ = dist.new_subgroups(1)
    alone = torch.ones(1)
    dist.all_reduce(alone, group=mine)
    assert alone.item() == 1
    for group in (*(one for one in groups if one is not dist.GroupMember.NON_GROUP_MEMBER), mine):
        dist.destroy_process_group(group)


def test_barriers() -> None:
    dist.barrier()
    dist.barrier(async_op=True).wait()
    collectives.torch.monitored_barrier(timeout=timedelta(seconds=30))


def test_the_functional_forms_of_traced_programs() -> None:
    funcol = __import__("torch.distributed._functional_collectives", fromlist=["x"])
    given, group = brought(rank(), 4 * size(), torch.float32), dist.group.WORLD
    every = all_brought(4 * size(), torch.float32)
    assert torch.equal(funcol.all_reduce(given, "sum", group).clone(), joined(every, OP.SUM))
    assert torch.equal(funcol.all_gather_tensor(given, 0, group).clone(), torch.cat(every))
    part = funcol.reduce_scatter_tensor(given, "sum", 0, group).clone()
    assert torch.equal(part, joined(every, OP.SUM).chunk(size())[rank()])
    assert torch.equal(funcol.broadcast(given, 0, group).clone(), every[0])


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


def test_a_message_shorter_than_its_room_is_an_error() -> None:
    group = dist.new_group()
    if rank() == 0:
        dist.send(torch.ones(2), 1, group=group)
    elif rank() == 1:
        with pytest.raises(dist.DistBackendError, match="rank 0 has sent 8 bytes, expected 16"):
            dist.recv(torch.zeros(4), 0, group=group)
    dist.destroy_process_group(group)


@pytest.mark.parametrize("tag", [-1, 2**31 + 5])
def test_a_tag_that_messages_lack_is_refused(tag) -> None:
    with pytest.raises(dist.DistBackendError, match=f"the tag is {tag}; it can be 0 to"):
        dist.isend(torch.ones(1), (rank() + 1) % size(), tag=tag)


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
