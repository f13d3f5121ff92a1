"""Losses of ranks: which errors say so, over stand-ins for MPI."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from collectives import Communicator, RankLostError
from collectives import loss as losses
from collectives.loss import as_rank_lost, ignoring_loss, is_loss, raises_rank_lost


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


def test_a_loss_in_a_call_that_is_new_is_raised_as_one(monkeypatch) -> None:
    comm = Communicator(MPI.COMM_SELF)

    def meet(*_: object) -> None:
        raise error(MPI.ERR_PROC_FAILED)

    monkeypatch.setattr("collectives.communicator.share", meet)
    with pytest.raises(RankLostError, match="a rank was lost"):
        comm.allreduce(np.ones(3))
    monkeypatch.undo()
    comm.free()
