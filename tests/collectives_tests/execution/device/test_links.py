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
from collectives.execution.device.choice import DevicePlans

NODES, GPUS, ELEMENTS = 4, 8, 8 * 1024
RANKS, NBYTES = NODES * GPUS, 4 * ELEMENTS


@pytest.fixture(autouse=True)
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(DevicePlans, "why_no_nccl", "not among threads")
    monkeypatch.setattr(DevicePlans, "has_local_nccl", False)
    with counted_ranks.on_nodes(monkeypatch):
        yield


def run(what: str, root: int = 0) -> list[int]:
    """Do a collective by what "auto" takes without NCCL, check its result; return what each rank sends off its node."""

    def work(comm: CountedComm) -> int:
        device = FakeDevice(seed=comm.rank)
        ours = Communicator(comm, group=Group.uniform(RANKS, GPUS), device=device)  # type: ignore[arg-type]
        array = device.zeros((ELEMENTS,), np.dtype("f4"))
        array.set(np.arange(ELEMENTS) % 7 + comm.rank)
        before = comm.counts.sent[comm.rank].copy()
        getattr(ours, what)(array, **({"root": root} if what in ("reduce", "bcast") else {}))
        check(what, comm.rank, root, array.get())
        sent = comm.counts.sent[comm.rank] - before
        node = comm.rank // GPUS
        return sum(nbytes for peer, nbytes in sent.items() if peer // GPUS != node)

    return counted_ranks.run(RANKS, GPUS, work)


def check(what: str, rank: int, root: int, found: np.ndarray) -> None:
    """Compare a rank's array after a collective in place."""
    base, block = np.arange(ELEMENTS) % 7, ELEMENTS // RANKS
    own = slice(block * rank, block * (rank + 1))
    if what == "allgather":
        expected: Any = base + np.arange(ELEMENTS) // block
        np.testing.assert_array_equal(found, expected)
    elif what == "bcast":
        np.testing.assert_array_equal(found, base + root)
    elif what == "allreduce" or (what == "reduce" and rank == root):
        np.testing.assert_array_equal(found, RANKS * base + sum(range(RANKS)))
    elif what == "reduce_scatter":
        np.testing.assert_array_equal(found[own], RANKS * base[own] + sum(range(RANKS)))


@pytest.mark.parametrize("way", ["staged", "direct"])
@pytest.mark.parametrize(
    ("what", "vectors"), [("allreduce", 2), ("reduce_scatter", 1), ("allgather", 1), ("reduce", 1), ("bcast", 1)]
)
def test_each_gpu_sends_over_its_adapter_its_part_alone(
    monkeypatch: pytest.MonkeyPatch, what: str, vectors: int, way: str
) -> None:
    monkeypatch.setenv(aware.VARIABLE, "1" if way == "direct" else "0")
    sent = run(what, root=11 if what in ("reduce", "bcast") else 0)
    assert max(sent) <= vectors * NBYTES / GPUS
    assert sum(sent) == vectors * NBYTES * (NODES - 1)  # all that must cross, once
