"""Nodes of GPUs through pinned host memory: results, what is copied over PCIe, and what a lost rank does to a run."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import counted_ranks
import numpy as np
import pytest
from counted_ranks import CountedComm
from device_arrays import compare, compare_blocks, rows
from fake_device import FakeDevice
from mpi4py import MPI

from collectives import Communicator, Group, RankLostError
from collectives.execution.device import hierarchy
from collectives.execution.device.hierarchy import HierarchyPlan
from collectives.execution.device.through_host import RangesPlan, is_consecutive
from collectives.execution.operations import OPERATIONS
from collectives.execution.plans import Plan, SchedulePlan

NODES, GPUS = 2, 3
RANKS = NODES * GPUS
FLOAT = np.dtype("f4")


@pytest.fixture(autouse=True)
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with counted_ranks.on_nodes(monkeypatch):
        yield


def over_ranks(work: Any, group: Group | None = None) -> list[Any]:
    """Return what `work(communicator, device)` returns on every rank, all through the host."""

    def main(comm: CountedComm) -> Any:
        device = FakeDevice(seed=comm.rank)
        made = Communicator(comm, group=group or Group.uniform(RANKS, GPUS), device=device, through_host=True)  # type: ignore[arg-type]
        return work(made, device)

    return counted_ranks.run(RANKS, GPUS, main)


@pytest.mark.parametrize("op", ["sum", "mean"])
@pytest.mark.parametrize("what", ["allreduce", "reduce", "bcast"])
def test_every_rank_gets_what_it_must(what: str, op: str) -> None:
    def work(comm: Communicator, device: FakeDevice) -> None:
        for length, root in ((500, 0), (500, 4), (2, 3)):
            everyone = rows(RANKS, length, FLOAT)
            send, recv = device.empty((length,), FLOAT), device.zeros((length,), FLOAT)
            send.set(everyone[comm.rank])
            where = 0 if what == "allreduce" else root
            compare(comm, what, send, recv, everyone, op, where, algorithm="leaders-chain", chunk_bytes=64)

    over_ranks(work)


@pytest.mark.parametrize("counts", [(80, 90, 100, 0, 110, 120), (1, 1, 1, 1, 1, 1)])
@pytest.mark.parametrize("what", ["reduce_scatter", "allgather"])
def test_blocks_of_a_nodes_ranks_are_joined_and_put_together_node_by_node(what: str, counts: tuple[int, ...]) -> None:
    def work(comm: Communicator, device: FakeDevice) -> None:
        everyone = rows(RANKS, sum(counts), FLOAT)
        compare_blocks(comm, device, what, everyone, "mean", counts, algorithm="leaders-ring", chunk_bytes=64)
        plan = comm.plan(what, device.zeros((sum(counts),), FLOAT), counts=counts, algorithm="leaders-ring")
        assert isinstance(plan, HierarchyPlan) and any(isinstance(part, RangesPlan) for part in plan.parts)

    over_ranks(work)


def test_blocks_that_lie_apart_go_round_all_ranks() -> None:
    """Where neighbouring ranks are on different nodes."""
    assert is_consecutive([[(0, 2), (4, 5)], [(2, 4), (5, 5)]])
    assert not is_consecutive([[(0, 1)], [(2, 3)]]) and not is_consecutive([[(0, 2), (4, 5)], [(2, 4), (6, 7)]])

    def work(comm: Communicator, device: FakeDevice) -> None:
        everyone = rows(RANKS, 60, FLOAT)
        compare_blocks(comm, device, "reduce_scatter", everyone, "sum", (10,) * RANKS, algorithm="leaders-ring")
        plan = comm.plan("reduce_scatter", device.zeros((60,), FLOAT), algorithm="leaders-ring")
        assert isinstance(plan, SchedulePlan) and plan.schedule.size == RANKS

    over_ranks(work, Group.of([rank % NODES for rank in range(RANKS)]))


@pytest.mark.parametrize(("what", "down", "up"), [("gather", [1, 1, 1], [0, 3, 0]), ("scatter", [0, 3, 0], [1, 1, 1])])
def test_the_roots_node_copies_what_a_rank_brings_or_gets_alone(what: str, down: list[int], up: list[int]) -> None:
    """In multiples of a rank's part of the vector; rank 1 of the first node is the root."""

    def work(comm: Communicator, device: FakeDevice) -> tuple[int, int]:
        copied = [0, 0]
        verb, array = ("reduce", "bcast")[what == "scatter"], device.zeros((GPUS * 64,), FLOAT)
        plan = comm.plan(verb, array, root=1, algorithm="leaders-chain")
        assert isinstance(plan, HierarchyPlan)
        part = (plan.into, plan.out)[what == "gather"]
        if comm.rank < GPUS:
            before = device.copy

            def copy(target: Any, source: Any, stream: Any) -> None:
                copied[isinstance(source, np.ndarray)] += target.nbytes
                before(target, source, stream)

            steps = part.steps

            def counted(wait: bool) -> Iterator[Any]:
                device.copy = copy  # type: ignore[method-assign]
                yield from steps(wait)
                device.copy = before  # type: ignore[method-assign]

            part.steps = counted  # type: ignore[method-assign,union-attr]
        plan.run()
        array.get()
        return copied[0] // 256, copied[1] // 256

    found = over_ranks(work)[:GPUS]
    assert [one for one, _ in found] == down and [one for _, one in found] == up


class Lost(Plan):
    """A part that a lost rank ends."""

    def __init__(self) -> None:
        self.drained = 0

    def steps(self, wait: bool) -> Iterator[Any]:
        raise RankLostError("a rank was lost")
        yield

    def under_way(self) -> Iterator[Any]:
        yield SimpleNamespace(Wait=lambda: None)

    def drain(self) -> None:
        self.drained += 1
        super().drain()


def test_a_lost_rank_ends_a_run_and_not_the_job_and_all_parts_are_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hierarchy, "end_job", lambda comm, problem: pytest.fail("it ends the job"))
    device, parts = FakeDevice(), [Lost(), Lost(), Lost()]
    ranges = RangesPlan([(slice(0, 2), slice(0, 2), parts[0])], brings=False)
    given = MPI.COMM_SELF, device, ranges, parts[1], parts[2], OPERATIONS["sum"], [(0, 2)], 4
    plan = HierarchyPlan(*given)  # type: ignore[arg-type]
    array = device.zeros((2,), FLOAT)
    plan.bind(array, array)  # type: ignore[arg-type]
    with pytest.raises(RankLostError):
        plan.run()
    assert len([*plan.under_way()]) == 3
    plan.drain()
    assert [one.drained for one in parts] == [1, 1, 1]
    with pytest.raises(RankLostError):
        plan.finish()
