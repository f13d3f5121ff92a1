"""Messages of a process group."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'scaffe[torch]'")
dist = torch.distributed

from torch_ranks import rank, size  # noqa: E402

from collectives.torch import group_calls  # noqa: E402

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.usefixtures("torch_group"),
]


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


@pytest.mark.two_ranks
def test_a_message_shorter_than_its_room_is_an_error(monkeypatch) -> None:
    monkeypatch.setattr(group_calls, "LAST", 0.1)  # rank 1 frees nothing then
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
