"""The parts of a hierarchy: which arrays they take, in what order they run, and when the sum is divided."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fake_device import FakeArray, FakeDevice

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


def made(names: str, op: str | None) -> tuple[HierarchyPlan, FakeDevice, list[str]]:
    """Return the plan of parts whose letters are u(p), b(etween) and d(own)."""
    device, seen = FakeDevice(), []
    parts = [Part(letter, device, seen) if letter in names else None for letter in "ubd"]
    return HierarchyPlan(device, *parts, op and OPERATIONS[op], 4), device, seen  # type: ignore[arg-type]


def arrays(device: FakeDevice) -> tuple[FakeArray, FakeArray]:
    send, recv = device.zeros((3,), np.dtype("f4")), device.zeros((3,), np.dtype("f4"))
    send.values[:], recv.values[:] = 8, 5
    return send, recv


@pytest.mark.parametrize(("op", "expected"), [("sum", 8), ("mean", 2)])
def test_a_leader_runs_all_parts_over_its_result(op: str, expected: float) -> None:
    plan, device, seen = made("ubd", op)
    send, recv = arrays(device)
    plan.bind(send, recv)
    plan.run()
    assert seen == ["mark u", "run u", "follow u", "mark b", "run b", "follow b", "mark d", "run d", "follow d"]
    assert recv.get().tolist() == [expected] * 3  # 5, and one for each part, over four ranks
    assert [part.send for part in plan.parts] == [send, recv, recv]
    assert [part.recv for part in plan.parts] == [recv, recv, None]


def test_a_leader_without_a_result_has_the_sum_elsewhere() -> None:
    plan, device, _ = made("ub", "mean")
    send, _ = arrays(device)
    plan.bind(send, None)
    up, between = plan.parts
    assert up.recv is between.send is not send and between.recv is None
    first = up.recv
    plan.bind(send, None)
    assert plan.parts[0].recv is first  # the same memory again
    plan.run()
    assert send.get().tolist() == [8] * 3


def test_other_ranks_give_and_get_in_their_node() -> None:
    plan, device, seen = made("ud", "sum")
    send, recv = arrays(device)
    plan.bind(send, recv)
    plan.run()
    assert plan.parts[0].recv is None and plan.parts[1].send is recv and seen[1::3] == ["run u", "run d"]
    assert recv.get().tolist() == [6] * 3


def test_a_broadcast_has_one_array_and_no_way_up() -> None:
    plan, device, _ = made("bd", None)
    send, _ = arrays(device)
    plan.bind(send, None)
    plan.run()
    assert [(part.send, part.recv) for part in plan.parts] == [(send, None)] * 2
    assert send.get().tolist() == [10] * 3
