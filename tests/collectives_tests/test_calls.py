"""Calls that were made before: which are found, and which are looked at again."""

from __future__ import annotations

import array
from collections.abc import Iterator

import numpy as np
import pytest
from mpi4py import MPI

from collectives import ArgumentError, Communicator, calls
from collectives.errors import DeviceFault
from collectives.execution.plans import Plan


@pytest.fixture
def comm() -> Iterator[Communicator]:
    made = Communicator(MPI.COMM_SELF)
    yield made
    made.free()


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch, comm: Communicator) -> list[str]:
    """The calls whose plans were looked for."""
    found, find = [], comm._find
    monkeypatch.setattr(comm, "_find", lambda given: found.append(given[0]) or find(given))
    return found


def test_the_same_arrays_are_the_same_call(comm: Communicator, looked: list[str]) -> None:
    one, other = np.ones(3), np.ones(3)
    for send in (one, one, other, one, other):
        comm.allreduce(send)
    assert len(looked) == 2
    comm.allreduce(one, other)
    comm.allreduce(one, op="max")
    comm.reduce(one)
    assert len(looked) == 5


def test_a_checked_call_and_memory_that_may_move_are_looked_at_each_time(comm: Communicator, looked: list[str]) -> None:
    send = np.ones(3)
    for _ in range(2):
        comm.allreduce(send, check=True)
    assert len(looked) == 2
    given = array.array("f", [1, 2])
    for _ in range(3):
        comm.bcast(given)
    assert len(looked) == 5


def test_equal_arguments_that_are_other_objects_are_the_same_call(comm: Communicator, looked: list[str]) -> None:
    send = np.ones(3)
    for _ in range(3):
        comm.allreduce(send, algorithm="".join("chain"), chunk_bytes=int("4096"))
        comm.allgather(send, counts=[3])
    assert len(looked) == 2


def test_a_list_of_counts_that_the_caller_has_changed_is_another_call(comm: Communicator) -> None:
    send, counts = np.ones(3), [3]
    for _ in range(2):
        comm.allgather(send, counts=counts)
    counts[0] = 2
    with pytest.raises(ArgumentError, match="send has 3 elements; expected 2"):
        comm.allgather(send, counts=counts)


def test_a_call_that_can_be_no_key_is_found_while_it_is_the_newest(
    comm: Communicator, looked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert calls._has_no_hash(([],)) and not calls._has_no_hash((1, "a"))
    monkeypatch.setattr(calls, "_has_no_hash", lambda key: "max" in key)
    send = np.ones(3)
    for op, times in (("max", 1), ("max", 1), ("sum", 2), ("max", 3), ("sum", 3)):
        comm.allreduce(send, op=op)
        assert len(looked) == times


def test_the_cache_forgets_a_plans_oldest_calls_and_begins_anew_when_it_is_full(
    comm: Communicator, looked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = [np.ones(3) for _ in range(9)]
    for send in arrays:
        comm.allreduce(send)
    assert len(comm._last) == 8
    comm.allreduce(arrays[1])
    assert len(looked) == 9
    comm.allreduce(arrays[0])
    assert len(looked) == 10
    monkeypatch.setattr(calls, "MOST_CALLS", 8)
    comm.allreduce(np.ones(5))
    assert len(comm._last) == 1
    comm.forget()
    assert not comm._last and comm._newest is calls.NO_CALL


def test_results_go_to_the_arrays_of_each_call(comm: Communicator) -> None:
    send, results = np.arange(3.0), [np.zeros(3) for _ in range(2)]
    for result in (*results, *results):
        result[:] = 0
        comm.allreduce(send, result, algorithm="chain")
        assert result.tolist() == [0, 1, 2]


def test_a_fault_of_the_device_is_told_with_the_call(comm: Communicator, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(plan: Plan) -> None:
        raise DeviceFault("illegal address")

    send = np.ones(3)
    plan = comm.plan("allreduce", send, algorithm="chain")
    monkeypatch.setattr(type(plan), "run", fails)
    with pytest.raises(DeviceFault, match="^allreduce of 24 bytes: illegal address$"):
        comm.allreduce(send, algorithm="chain")
