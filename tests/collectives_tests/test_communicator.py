"""A communicator of one rank: what its dups share with it, and what other ranks' answers change."""

from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from collectives import Communicator


def test_a_dup_passes_through_host_memory_too_and_is_given_up_with_its_communicator() -> None:
    comm = Communicator(MPI.COMM_SELF, through_host=True)
    dup = comm.dup()
    dup.allreduce(np.ones(3, np.float32))
    assert dup._plans and dup._maker.through_host
    comm.abandon()
    assert not dup._plans


def test_a_node_without_room_for_windows_counts_for_all_ranks() -> None:
    comm = Communicator(MPI.COMM_SELF)
    assert comm.has_room(0)

    def with_another(place: object, found: np.ndarray, op: MPI.Op) -> SimpleNamespace:
        found[1] = 1  # what the other rank says, that it has none
        return SimpleNamespace(Wait=lambda: None)

    comm.comm = SimpleNamespace(size=2, Iallreduce=with_another)  # type: ignore[assignment]
    assert not comm.has_room(0)


def test_ranks_agree_on_a_call_once_and_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    comm, agreed = Communicator(MPI.COMM_SELF), []
    real = comm._agreed_plan
    monkeypatch.setattr(comm, "_agreed_plan", lambda *given: agreed.append(given[0]) or real(*given))
    array = np.ones(3, np.float32)
    plans = [comm.plan("allreduce", array, algorithm="ring") for _ in range(2)]
    assert plans[0] is plans[1] and len(agreed) == 1
    assert comm.plan("allreduce", array, algorithm="ring", check=True) is plans[0] and len(agreed) == 2
    assert comm.plan("allreduce", array, algorithm="ring", number=1) is not plans[0] and len(agreed) == 3
    comm.free()
