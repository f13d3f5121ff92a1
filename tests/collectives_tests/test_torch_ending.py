"""What a rank does that fails, or ends before its groups do, over a stand-in for MPI."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'scaffe[torch]'")

from collectives.torch import ending  # noqa: E402


class Group:
    """A process group that was not destroyed."""

    is_stuck = has_left = False

    def leave(self) -> None:
        self.has_left = True


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Let this be rank 1 of 2; return what is done in the end."""
    found: list[tuple[Any, ...]] = []
    world = SimpleNamespace(rank=1, size=2)
    intracomm = type("Intracomm", (), {"Shrink": None})
    made = SimpleNamespace(COMM_WORLD=world, Is_finalized=lambda: False, Intracomm=intracomm)
    monkeypatch.setattr(ending, "MPI", made)
    monkeypatch.setattr(ending, "GROUPS", {Group()})
    monkeypatch.setattr(ending, "write", lambda text: found.append(("write", text)))
    monkeypatch.setattr(ending, "abort", lambda comm, code, text: found.append(("abort", comm, code, text)))
    monkeypatch.setattr(os, "_exit", lambda code: found.append(("exit", code)) or sys.exit(code))
    monkeypatch.delenv(ending.TOLERANT, raising=False)
    return found


def test_the_end_of_a_rank_ends_the_job_or_where_that_goes_on_the_process(
    said: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = ending.MPI.COMM_WORLD
    ending.end("bad\n")
    assert said == [("abort", world, 1, "bad\n")]
    monkeypatch.setenv(ending.TOLERANT, "1")
    assert ending.is_tolerant()
    with pytest.raises(SystemExit):
        ending.end("bad\n")
    assert said[1:] == [("write", "bad\n"), ("exit", 1)]
    monkeypatch.setattr(world, "size", 1)
    ending.end("bad\n")
    monkeypatch.setattr(world, "size", 2)
    monkeypatch.setattr(ending.MPI, "Is_finalized", lambda: True)
    ending.end("bad\n")
    assert len(said) == 3
    monkeypatch.setattr(ending.MPI, "Intracomm", object)
    assert not ending.is_tolerant()


def test_who_leaves_says_so_and_ends_the_job_where_a_collective_is_under_way(said: list[tuple[Any, ...]]) -> None:
    (group,) = ending.GROUPS
    ending.leave()
    assert group.has_left and not said
    group.is_stuck = True
    ending.leave()
    assert said[0][3] == "rank 1: ends while a collective of PyTorch is under way, so the job ends\n"


def test_an_exception_that_nobody_catches_ends_the_job_once_it_is_shown(
    said: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[type] = []
    later: list[tuple[Callable[..., object], ...]] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: shown.append(kind))
    monkeypatch.setattr(atexit, "register", lambda *given: later.append(given))
    ending.watch.__wrapped__()
    assert later == [(ending.leave,)]
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    sys.excepthook(ValueError, ValueError("x"), None)
    ending.GROUPS.clear()
    sys.excepthook(ValueError, ValueError("x"), None)
    assert shown == [KeyboardInterrupt, ValueError, ValueError]
    assert later[1:] == [(ending.end, "rank 1: ValueError ends the job\n")]
