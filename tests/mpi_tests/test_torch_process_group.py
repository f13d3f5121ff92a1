"""Process groups: of some ranks, of objects, and as torch.distributed asks for them."""

from __future__ import annotations

from datetime import timedelta

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


@pytest.mark.two_ranks
def test_the_functional_forms_of_traced_programs() -> None:
    funcol = __import__("torch.distributed._functional_collectives", fromlist=["x"])
    given, group = brought(rank(), 4 * size(), torch.float32), dist.group.WORLD
    every = all_brought(4 * size(), torch.float32)
    assert torch.equal(funcol.all_reduce(given, "sum", group).clone(), joined(every, OP.SUM))
    assert torch.equal(funcol.all_gather_tensor(given, 0, group).clone(), torch.cat(every))
    part = funcol.reduce_scatter_tensor(given, "sum", 0, group).clone()
    assert torch.equal(part, joined(every, OP.SUM).chunk(size())[rank()])
    assert torch.equal(funcol.broadcast(given, 0, group).clone(), every[0])
