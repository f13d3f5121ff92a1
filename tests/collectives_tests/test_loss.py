"""Losses of ranks: which errors say so, and how a communicator is given up, over stand-ins for MPI."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from collectives import Communicator, RankLostError
from collectives import loss as losses
from collectives.execution import window
from collectives.loss import as_rank_lost, ignoring_loss, is_loss, raises_rank_lost
from collectives.revocable import Revocable


def error(kind: int) -> MPI.Exception:
    return MPI.Exception(kind)


@pytest.fixture(params=[False, True], ids=["none is lost", "one is lost"])
def has_lost(request, monkeypatch) -> bool:
    """Whether MPI knows of a lost rank."""
    monkeypatch.setattr(losses, "_has_lost_any", lambda: request.param)
    return request.param


def test_what_mpi_reports_for_a_loss_alone_is_always_one(has_lost) -> None:
    for name in ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED"):
        assert is_loss(error(getattr(MPI, name)))
    assert is_loss(RankLostError("gone"))


def test_errors_with_another_cause_too_are_losses_where_a_rank_is_lost(has_lost) -> None:
    for one in (error(MPI.ERR_OTHER), pickle.UnpicklingError(), EOFError()):
        assert is_loss(one) is has_lost


def test_any_other_error_is_none(has_lost) -> None:
    for one in (error(MPI.ERR_TRUNCATE), ValueError(), KeyboardInterrupt(), None):
        assert not is_loss(one)


def test_no_rank_is_lost_where_mpi_cannot_say_so(monkeypatch) -> None:
    def refuses() -> MPI.Group:
        raise NotImplementedError

    for failed, lost in ((lambda: SimpleNamespace(Get_size=lambda: 2), True), (refuses, False)):
        monkeypatch.setattr(MPI, "COMM_WORLD", SimpleNamespace(Get_failed=failed))
        assert losses._has_lost_any() is lost
    monkeypatch.setattr(MPI, "COMM_WORLD", SimpleNamespace())  # mpi4py 3
    assert not losses._has_lost_any()


def test_a_loss_is_raised_as_one_and_any_other_error_as_it_is() -> None:
    lost, known, other = error(MPI.ERR_REVOKED), RankLostError("gone"), ValueError("no")
    assert isinstance(as_rank_lost(lost), RankLostError) and "MPI_ERR_REVOKED" in str(as_rank_lost(lost))
    assert as_rank_lost(known) is known and as_rank_lost(other) is other

    @raises_rank_lost
    def fail(given: Exception) -> None:
        raise given

    for given, kind in ((lost, RankLostError), (known, RankLostError), (other, ValueError)):
        with pytest.raises(kind):
            fail(given)


def test_regardless_of_losses_other_errors_are_raised() -> None:
    with ignoring_loss():
        raise error(MPI.ERR_PROC_FAILED)
    with pytest.raises(ValueError), ignoring_loss():
        raise ValueError


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
    assert {*events[:2]} == {"comm: all revoked", "comm: node revoked"}
    assert {*events[2:]} == {f"dup: {one}" for one in ("all revoked", "node revoked", "cross revoked", "drained")} | {
        "comm: drained"
    }
    assert events[-1] == "comm: drained"


@pytest.mark.parametrize("windows", [True, False])
def test_windows_are_dropped_once_by_their_owner(windows) -> None:
    events: list[str] = []
    comm, dup = Given("comm", events), Given("dup", events, owns=False)
    comm._dups.add(dup)
    comm.abandon(windows)
    assert events == [f"comm: windows {windows}"]
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
