"""Another process's memory, over this one's own."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from collectives.errors import RankLostError
from collectives.execution import peer
from collectives.execution.peer import RemoteAddress, address

NOBODY = 1 << 30  # above the kernel's largest process id


@pytest.fixture
def here() -> tuple[np.ndarray, RemoteAddress]:
    """An array, and where it lies."""
    array = np.arange(6.0)
    return array, RemoteAddress(os.getpid(), address(array))


def test_memory_is_read_and_written_where_the_system_lets_processes(here: tuple[np.ndarray, RemoteAddress]) -> None:
    array, place = here
    if not peer.works(MPI.COMM_SELF):
        pytest.skip("processes here can't read each other's memory")
    found = np.empty(2)
    peer.read(place._replace(address=place.address + 16), found)
    peer.write(np.array([7.0]), place)
    assert found.tolist() == [2, 3] and array.tolist() == [7, 1, 2, 3, 4, 5]


def test_a_process_that_has_ended_is_a_lost_rank_and_what_is_forbidden_an_error(
    monkeypatch: pytest.MonkeyPatch, here: tuple[np.ndarray, RemoteAddress]
) -> None:
    with pytest.raises(RankLostError, match=f"process {NOBODY} of this node has ended"):
        peer.read(here[1]._replace(pid=NOBODY), np.empty(1))
    with pytest.raises(OSError, match=f"process {os.getpid()}: Bad address"):
        peer.read(here[1]._replace(address=8), np.empty(1))
    monkeypatch.setattr(peer, "read", lambda source, target: target.fill(-1))
    assert not peer.works(MPI.COMM_SELF)


def test_what_the_system_moves_in_part_goes_on_behind_it(here: tuple[np.ndarray, RemoteAddress]) -> None:
    array, place = here
    moves: list[tuple[int, int, int]] = []

    def twenty_bytes(pid: int, ours: Any, one: int, theirs: Any, other: int, flags: int) -> int:
        moves.append((ours._obj.base - address(array), theirs._obj.base - place.address, ours._obj.length))
        assert theirs._obj.length == ours._obj.length
        return min(20, ours._obj.length)

    peer._move(twenty_bytes, place, array)
    assert moves == [(0, 0, 48), (20, 20, 28), (40, 40, 8)]
