"""How a communicator is given up once a rank is lost, over stand-ins for MPI, and how its windows go on."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from collectives import Communicator
from collectives.execution import window
from collectives.revocable import Revocable


def error(kind: int) -> MPI.Exception:
    return MPI.Exception(kind)


class Given(Revocable):
    """A Communicator of stand-ins, which note in `events` what is done to them."""

    def __init__(self, name: str, events: list[str], owns: bool = True):
        super().__init__()

        def stand_in(what: str) -> SimpleNamespace:
            def revoke() -> None:
                events.append(f"{name}: {what} revoked")
                raise error(MPI.ERR_PROC_FAILED)  # as of a communicator that another rank has revoked

            return SimpleNamespace(Revoke=revoke)

        self.comm, self._local = stand_in("all"), stand_in("node")  # type: ignore[assignment]
        self._maker = SimpleNamespace(cross=stand_in("cross"))  # type: ignore[assignment]
        quiet = SimpleNamespace(comm=stand_in("agreement"), abandon=lambda: events.append(f"{name}: answers no more"))
        self._mismatch = quiet  # type: ignore[assignment]
        self._plans = {0: SimpleNamespace(drain=lambda: events.append(f"{name}: drained"))}  # type: ignore[dict-item]
        self.node = SimpleNamespace(abandon=lambda windows: events.append(f"{name}: windows {windows}"))  # type: ignore
        self._owns = owns


def test_all_communicators_are_revoked_before_any_message_is_awaited() -> None:
    """Else this rank waits for a rank that waits, in another communicator, for the lost one."""
    events: list[str] = []
    comm, dup = Given("comm", events), Given("dup", events, owns=False)
    comm._dups.add(dup)
    comm._maker.cross = None  # a node's first rank alone has one
    comm.revoke()
    revoked = ("all revoked", "node revoked", "agreement revoked")
    assert {*events[:3]} == {f"comm: {one}" for one in revoked}
    assert {*events[3:]} == {f"dup: {one}" for one in (*revoked, "cross revoked", "drained")} | {"comm: drained"}
    assert events[-1] == "comm: drained"


@pytest.mark.parametrize("windows", [True, False])
def test_windows_are_dropped_once_by_their_owner(windows) -> None:
    events: list[str] = []
    comm, dup = Given("comm", events), Given("dup", events, owns=False)
    comm._dups.add(dup)
    comm.abandon(windows)
    assert events == ["dup: answers no more", "comm: answers no more", f"comm: windows {windows}"]
    assert not comm._plans and not dup._plans


def given_up(sizes: Sequence[int]) -> tuple[Communicator, list[np.ndarray]]:
    """Return a communicator of this rank that was given up, and its arrays in windows, which stay."""
    comm = Communicator(MPI.COMM_SELF)
    arrays = [comm.empty(size) for size in sizes]
    for number, array in enumerate(arrays):
        array[...] = number + np.arange(array.size)
    comm.abandon(windows=False)
    return comm, arrays


def test_windows_are_taken_over_where_they_lie() -> None:
    (broken, arrays), comm = given_up([5, 7, 7]), Communicator(MPI.COMM_SELF)
    found = comm.take_over([broken], 7, 2)
    assert [one.ctypes.data for one in found] == [one.ctypes.data for one in arrays[1:]]
    np.testing.assert_array_equal(found[1], 2 + np.arange(7))
    assert comm.node.holds(found[0]) and not comm.node.holds(arrays[0])
    broken.abandon()  # gives back the memory of the first alone
    np.testing.assert_array_equal(found[0], 1 + np.arange(7))
    comm.free()


def test_windows_of_another_size_and_those_taken_already_are_not_taken_over() -> None:
    (broken, _), comm = given_up([7, 7]), Communicator(MPI.COMM_SELF)
    assert comm.take_over([broken], 6, 2) == [] == comm.take_over([broken], 7, 3) == comm.take_over([], 7, 2)
    assert len(comm.take_over([broken], 7, 2)) == 2
    assert comm.take_over([broken], 7, 2) == []
    comm.free()


def test_windows_that_a_rank_of_the_node_lacks_are_not_taken_over() -> None:
    (broken, _), comm = given_up([7, 7]), Communicator(MPI.COMM_SELF)
    others = [([one.key for one in broken.node.given_up], "another process"), ([], window.PROCESS)]
    for other in others:
        comm.node.comm = SimpleNamespace(allgather=lambda mine, other=other: [mine, other])
        assert comm.node.common([broken.node], 28, 2)[0] == []


def test_the_memory_of_windows_that_were_kept_is_given_back_later(monkeypatch) -> None:
    given_back: list[window.SharedWindow] = []
    monkeypatch.setattr(window.SharedWindow, "abandon", lambda one: given_back.append(one))
    (broken, _), comm, later = given_up([7]), Communicator(MPI.COMM_SELF), Communicator(MPI.COMM_SELF)
    comm.take_over([broken], 7, 1)
    comm.abandon(windows=False)
    assert later.take_over([broken, comm], 7, 1) and not given_back  # a second loss
    ours = [*later.node.windows]
    later.free()  # not by MPI, which has lost ranks
    assert given_back == ours
    kept, _ = given_up([7])
    theirs = [*kept.node.given_up]
    kept.abandon()
    assert given_back == ours + theirs


def test_each_window_has_a_key_of_its_own_and_a_rank_of_another_node_may_lack_it() -> None:
    (broken, _), comm = given_up([7, 7]), Communicator(MPI.COMM_SELF)
    assert len({one.key for one in broken.node.given_up}) == 2
    comm.comm = SimpleNamespace(allgather=lambda mine: [mine, False])
    assert comm.take_over([broken], 7, 2) == [] and len(broken.node.given_up) == 2
