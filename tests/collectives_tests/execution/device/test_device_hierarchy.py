"""The parts of a hierarchy: which arrays they take, in what order they run, and when the sum is divided."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fake_device import FakeArray, FakeDevice
from mpi4py import MPI

from collectives.errors import ArgumentError
from collectives.execution.device import hierarchy
from collectives.execution.device.hierarchy import HierarchyPlan
from collectives.execution.operations import OPERATIONS
from collectives.execution.plans import Plan


class Part(Plan):
    """Adds one to its first array, on the caller's stream."""

    def __init__(self, name: str, device: FakeDevice, seen: list[str]):
        self.name, self.device, self.seen = name, device, seen

    def mark(self) -> None:
        self.seen.append(f"mark {self.name}")

    def follow(self) -> None:
        self.seen.append(f"follow {self.name}")
        target = self.send if self.recv is None else self.recv
        self.device.put(self.device.current(), lambda: np.add(target.values, 1, out=target.values))

    def steps(self, wait: bool) -> Iterator[Any]:
        self.seen.append(f"run {self.name}")
        yield from ()


def made(names: str, op: str | None, **how: Any) -> tuple[HierarchyPlan, FakeDevice, list[str]]:
    """Return the plan of parts whose letters are i(nto), b(etween) and o(ut), over slices of 2 of 3 elements."""
    device, seen = FakeDevice(), []
    parts = [Part(letter, device, seen) if letter in names else None for letter in "ibo"]
    return HierarchyPlan(MPI.COMM_SELF, device, *parts, op and OPERATIONS[op], [(1, 3)], 4, **how), device, seen  # type: ignore[arg-type]


def arrays(device: FakeDevice) -> tuple[FakeArray, FakeArray]:
    send, recv = device.zeros((3,), np.dtype("f4")), device.zeros((3,), np.dtype("f4"))
    send.values[:], recv.values[:] = 8, 5
    return send, recv


def test_all_parts_run_in_their_order_over_the_slice() -> None:
    plan, device, seen = made("ibo", "sum")
    send, recv = arrays(device)
    plan.bind(send, recv)
    plan.run()
    assert seen == ["mark i", "run i", "follow i", "mark b", "run b", "follow b", "mark o", "run o", "follow o"]
    into, between, out = plan.parts
    part = into.recv
    assert part is not None and part.size == 2
    assert (into.send, between.send, between.recv, out.send, out.recv) == (send, part, part, part, recv)
    plan.bind(send, None)
    assert into.recv is part and out.recv is send  # the same memory again; in place
    assert send.get().tolist() == [8] * 3 and recv.get().tolist() == [6] * 3


def test_a_mean_is_divided_once_between_the_nodes_and_the_way_out() -> None:
    plan, device, _ = made("ibo", "mean")
    send, recv = arrays(device)
    divided: list[Any] = []
    device.divide = lambda values, ranks, stream: divided.append((values, ranks))  # type: ignore[method-assign,assignment]
    plan.bind(send, recv)
    plan.run()
    assert divided == [(plan.parts[0].recv, 4)]


def test_ranks_of_other_nodes_have_no_sum_and_other_ranks_of_the_roots_node_no_result() -> None:
    plan, device, _ = made("ib", "mean", has_sum=False, has_result=False)
    send, _ = arrays(device)
    plan.bind(send, None)
    plan.run()
    assert plan.parts[1].recv is None and send.get().tolist() == [8] * 3
    plan, device, _ = made("ibo", "sum", has_result=False)
    send, _ = arrays(device)
    plan.bind(send, None)
    assert plan.parts[1].recv is plan.parts[1].send and plan.parts[2].recv is None


def test_an_error_in_a_node_ends_the_job_since_other_nodes_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, device, seen = made("ibo", "sum")
    ended: list[str] = []

    def fail(wait: bool) -> Iterator[Any]:
        raise ArgumentError("rank 1: no more room for mappings")
        yield

    monkeypatch.setattr(plan.parts[0], "steps", fail)
    monkeypatch.setattr(hierarchy, "end_job", lambda comm, problem: ended.append(problem))
    plan.bind(*arrays(device))
    plan.run()
    assert ended == ["rank 1: no more room for mappings"]
    monkeypatch.setattr(plan.parts[0], "steps", lambda wait: iter(()))
    monkeypatch.setattr(plan.parts[1], "steps", fail)
    with pytest.raises(ArgumentError):  # which all its ranks have
        plan.run()


def test_blocks_are_what_a_rank_gets_or_brings() -> None:
    plan, device, _ = made("ib", "sum", block=(1, 3))
    send, recv = arrays(device)
    plan.bind(send, recv)
    into, between = plan.parts
    assert between.send is into.recv and between.recv is not None
    assert (between.recv.values.ctypes.data, between.recv.size) == (recv.values.ctypes.data + 4, 2)
    plan, device, _ = made("bo", None, block=(1, 3))
    send, recv = arrays(device)
    plan.bind(send, recv)
    between, out = plan.parts
    assert between.send.size == 2
    assert between.recv is out.send and out.recv is recv


def test_what_messages_between_nodes_have_lost_is_of_this_ranks_slices() -> None:
    device = FakeDevice()
    between = Part("b", device, [])
    between.give_lost = lambda vector: np.add(vector, [1, 2, 3], out=vector)  # type: ignore[method-assign]
    plan = HierarchyPlan(MPI.COMM_SELF, device, None, between, None, OPERATIONS["sum"], [(1, 2), (4, 6)], 4)  # type: ignore[arg-type]
    vector = np.full(7, 10, np.float32)
    plan.give_lost(vector)
    assert vector.tolist() == [10, 11, 10, 10, 12, 13, 10]


def test_a_broadcast_has_one_array() -> None:
    plan, device, _ = made("bo", None)
    send, _ = arrays(device)
    plan.bind(send, None)
    plan.run()
    between, out = plan.parts
    assert (between.recv, out.recv) == (None, send) and between.send is out.send and between.send.size == 2
