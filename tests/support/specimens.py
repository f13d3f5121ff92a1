"""Tests that go wrong on purpose; test_lockstep.py runs them under mpirun and looks at what comes out."""

from __future__ import annotations

import ctypes
import os
import subprocess

import lockstep
import pytest
from mpi4py import MPI

world = MPI.COMM_WORLD
pytestmark = pytest.mark.mpi

if os.environ.get("SPECIMEN_IMPORT_FAILS") == str(world.rank):
    raise ImportError("this rank has no such module")


def test_that_passes() -> None:
    assert world.allreduce(1) == world.size


def test_that_fails_on_rank_1() -> None:
    assert world.rank != 1, "rank 1 alone is wrong"


@pytest.fixture
def broken_on_rank_1() -> None:
    if world.rank == 1:
        raise RuntimeError("no fixture on rank 1")


def test_whose_fixture_fails_on_rank_1(broken_on_rank_1: None) -> None:
    world.Barrier()


def test_that_rank_1_skips() -> None:
    if world.rank == 1:
        pytest.skip("not here")


def test_that_all_skip() -> None:
    pytest.skip("nowhere")


@pytest.mark.watchdog(2)
def test_that_hangs_after_a_failure_on_rank_1() -> None:
    assert world.rank != 1, "rank 1 left the others waiting"
    world.Barrier()


@pytest.mark.watchdog(2)
def test_that_hangs_without_mpi() -> None:
    world.Clone().Recv(bytearray(1), source=0)


@pytest.mark.watchdog(2)
def test_that_hangs_beside_a_process() -> None:
    pipe = int(os.environ["SPECIMEN_PIPE"])
    subprocess.Popen(["sleep", "1000"], pass_fds=[pipe]).wait()


def test_that_keeps_the_gil() -> None:
    lockstep.STILL = 2.0
    ctypes.CDLL(None).sleep(3)  # the watchdog looks meanwhile
    ctypes.PyDLL(None).pause()
