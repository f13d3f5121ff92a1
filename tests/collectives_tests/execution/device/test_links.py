"""Bytes over each adapter: four nodes of eight GPUs, whose ranks are threads over fake devices and counted messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import counted_ranks
import numpy as np
import pytest
from counted_ranks import CountedComm
from fake_device import FakeDevice

from collectives import Communicator, Group
from collectives.execution.device import aware

NODES, GPUS, ELEMENTS = 4, 8, 8 * 1024
RANKS, NBYTES = NODES * GPUS, 4 * ELEMENTS
ERRORS = {"": 0, "bf16": 2**-8, "int8": 2**-7}


@pytest.fixture(autouse=True)
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with counted_ranks.on_gpu_nodes(monkeypatch, "not among threads"):
        yield


def run(what: str, root: int = 0, numbers: str = "", **how: bool) -> list[int]:
    """Do a collective by what "auto" takes without NCCL, check its result; return what each rank sends off its node."""
    results: list[Any] = [None] * RANKS
    devices = [FakeDevice(seed=rank) for rank in range(RANKS)]

    def work(comm: CountedComm) -> int:
        device = devices[comm.rank]
        ours = Communicator(comm, group=Group.uniform(RANKS, GPUS), device=device, **how)  # type: ignore[arg-type]
        array = device.zeros((ELEMENTS,), np.dtype("f4"))
        array.set(np.arange(ELEMENTS) % 7 + comm.rank)
        before = comm.counts.sent[comm.rank].copy()
        where = {"root": root} if what in ("reduce", "bcast") else {}
        if numbers:
            ours.plan(what, array, numbers=numbers, **where).run()
        else:
            getattr(ours, what)(array, **where)
        results[comm.rank] = array.get()
        check(what, comm.rank, root, results[comm.rank], ERRORS[numbers])
        sent = comm.counts.sent[comm.rank] - before
        node = comm.rank // GPUS
        return sum(nbytes for peer, nbytes in sent.items() if peer // GPUS != node)

    sent = counted_ranks.run(RANKS, GPUS, work)
    for device in devices:
        device.free()
    if what in ("allreduce", "allgather"):
        assert len({one.tobytes() for one in results}) == 1  # all have the same bits
    return sent


def check(what: str, rank: int, root: int, found: np.ndarray, error: float) -> None:
    """Compare a rank's array after a collective in place, whose messages are rounded by a share of the largest."""
    base, block = np.arange(ELEMENTS) % 7, ELEMENTS // RANKS
    own = slice(block * rank, block * (rank + 1))
    if what == "allgather":
        near(found, base + np.arange(ELEMENTS) // block, error)
    elif what == "bcast":
        near(found, base + root, error)
    elif what == "allreduce" or (what == "reduce" and rank == root):
        near(found, RANKS * base + sum(range(RANKS)), error)
    elif what == "reduce_scatter":
        near(found[own], RANKS * base[own] + sum(range(RANKS)), error)


def near(found: np.ndarray, expected: np.ndarray, error: float) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=NODES * error * expected.max())


VECTORS = [("allreduce", 2), ("reduce_scatter", 1), ("allgather", 1), ("reduce", 1), ("bcast", 1)]


@pytest.mark.parametrize("way", ["staged", "direct"])
@pytest.mark.parametrize(("what", "vectors"), VECTORS)
def test_each_gpu_sends_over_its_adapter_its_part_alone(
    monkeypatch: pytest.MonkeyPatch, what: str, vectors: int, way: str
) -> None:
    monkeypatch.setenv(aware.VARIABLE, "1" if way == "direct" else "0")
    sent = run(what, root=11 if what in ("reduce", "bcast") else 0)
    assert max(sent) <= vectors * NBYTES / GPUS
    assert sum(sent) == vectors * NBYTES * (NODES - 1)  # all that must cross, once


@pytest.mark.parametrize(("numbers", "share"), [("bf16", 1 / 2), ("int8", 1 / 4 + 1 / 256)])
@pytest.mark.parametrize(("what", "vectors"), VECTORS)
def test_rounded_messages_are_a_half_or_a_quarter_of_that(what: str, vectors: int, numbers: str, share: float) -> None:
    sent = run(what, root=11 if what in ("reduce", "bcast") else 0, numbers=numbers)
    assert max(sent) <= share * vectors * NBYTES / GPUS
    assert sum(sent) == share * vectors * NBYTES * (NODES - 1)


@pytest.mark.parametrize(("what", "vectors"), VECTORS)
def test_where_a_rank_may_be_lost_each_gpu_sends_its_part_alone_too(what: str, vectors: int) -> None:
    sent = run(what, root=11 if what in ("reduce", "bcast") else 0, through_host=True)
    assert max(sent) <= vectors * NBYTES / GPUS
    assert sum(sent) == vectors * NBYTES * (NODES - 1)
