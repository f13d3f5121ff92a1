"""What replaces an algorithm that device arrays can't have."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from fake_device import FakeDevice
from mpi4py import MPI

from collectives.execution.device import aware
from collectives.execution.device.choice import MAY_END, DevicePlans
from collectives.execution.device.transports import DirectTransport, StagedTransport
from collectives.schedules.algorithms import Choice


def plans(sharing: bool = True, has_nccl: bool = True, **how: bool) -> DevicePlans:
    device = FakeDevice(sharing=sharing)
    device.has_nccl = has_nccl
    return DevicePlans(MPI.COMM_SELF, MPI.COMM_SELF, device, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("what", "asked", "nodes", "dtype", "found"),
    [
        ("allreduce", "ring", 1, "f4", "ring"),
        ("allreduce", "nccl", 1, "f4", "nccl"),
        ("allreduce", "slices", 1, "f4", "slices"),
        ("allreduce", "slices", 2, "f4", "ring"),
        ("reduce", "slices", 2, "f4", "chain"),
        ("allreduce", "mpi", 1, "f4", "mpi"),
        ("allreduce", "mpi", 1, "f2", "ring"),
        ("bcast", "mpi", 1, "f2", "mpi"),
        ("allreduce", "leaders-ring", 2, "f4", "leaders-ring"),
        ("allreduce", "leaders-ring", 1, "f4", "slices"),
        ("allgather", "slices", 1, "f4", "slices"),
        ("allgather", "nccl", 2, "f4", "nccl"),
        ("allgather", "mpi", 1, "f4", "ring"),
        ("reduce_scatter", "leaders-ring", 2, "f4", "leaders-ring"),
        ("reduce_scatter", "leaders-mpi", 2, "f4", "leaders-ring"),
        ("allgather", "halving", 1, "f4", "halving"),
    ],
)
def test_a_choice_stays_where_the_devices_can_do_it(what: str, asked: str, nodes: int, dtype: str, found: str) -> None:
    assert plans().choose(what, Choice(asked), nodes, 2, np.dtype(dtype), 3).algorithm == found
    assert plans().choose(what, Choice(asked), nodes, 2, np.dtype(dtype), 0).algorithm == (
        "ring" if what in ("reduce_scatter", "allgather") else "mpi"
    )


@pytest.mark.parametrize(
    ("asked", "nodes", "found"),
    [("slices", 1, "ring"), ("nccl", 1, "ring"), ("leaders-ring", 2, "ring"), ("halving", 1, "halving")],
)
def test_without_access_to_each_others_memory_schedules_run(asked: str, nodes: int, found: str) -> None:
    made = plans(sharing=False, has_nccl=False)
    choice = made.choose("allreduce", Choice(asked), nodes, 2, np.dtype("f4"), 3)
    assert choice.algorithm == found
    if asked != found:
        assert choice.why == ("NCCL can't be loaded" if asked == "nccl" else "a fake that shares nothing")


@pytest.mark.parametrize(
    ("asked", "nodes", "ranks", "numbers", "found"),
    [
        ("nccl", 1, 2, "int8", "nccl"),  # its maker refuses these three
        ("slices", 2, 2, "int8", "slices"),
        ("leaders-ring", 2, 0, "", "leaders-ring"),
        ("leaders-ring", 1, 2, "int8", "ring"),  # not slices, which can send no such numbers
    ],
)
def test_what_was_asked_for_and_can_never_be_is_left_to_be_refused(
    asked: str, nodes: int, ranks: int, numbers: str, found: str
) -> None:
    choice = plans(has_nccl=False).choose("allreduce", Choice(asked), nodes, ranks, np.dtype("f4"), 3, numbers)
    assert choice.algorithm == found


@pytest.mark.parametrize(
    ("what", "sharing", "has_nccl", "nodes", "ranks", "found"),
    [
        ("allreduce", True, True, 4, 8, "nccl"),
        ("reduce_scatter", False, True, 1, 8, "nccl"),
        ("allreduce", True, False, 1, 8, "slices"),
        ("allreduce", True, False, 4, 8, "leaders-ring"),
        ("reduce", True, False, 4, 8, "leaders-chain"),
        ("reduce_scatter", True, False, 4, 8, "leaders-ring"),
        ("bcast", True, False, 4, 1, "chain"),
        ("bcast", True, False, 4, 0, "chain"),
        ("allreduce", False, False, 1, 8, "ring"),
        ("allreduce", False, False, 4, 8, "ring"),
    ],
)
def test_auto_is_what_joins_the_devices_without_a_table(
    what: str, sharing: bool, has_nccl: bool, nodes: int, ranks: int, found: str
) -> None:
    made = plans(sharing=sharing, has_nccl=has_nccl).choose(what, Choice("auto"), nodes, ranks, np.dtype("f4"), 3)
    assert made.algorithm == found and not made.chunk_bytes


def test_leaders_whose_nodes_differ_since_a_rank_was_lost_become_a_schedule_over_all() -> None:
    made = plans(through_host=True)
    for name, ranks, found in (
        ("leaders-halving", 2, "leaders-halving"),
        ("leaders-halving", 0, "ring"),
        ("auto", 0, "ring"),
    ):
        choice = made.choose("allreduce", Choice(name), 2, ranks, np.dtype("f4"), 3)
        if name != "auto":
            blocks = made.choose("allgather", Choice("leaders-mpi"), 2, ranks, np.dtype("f4"), 3)
            assert blocks.algorithm == ("leaders-ring" if ranks else "ring")
        assert choice.algorithm == found
        assert (choice.why == "nodes differ in their numbers of ranks") == (name != "auto" and not ranks)


def test_a_replacement_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    made = plans(sharing=False)
    with caplog.at_level(logging.INFO, "collectives.execution.device"):
        for what in ("allreduce", "allreduce", "bcast"):
            made.choose(what, Choice("slices"), 1, 2, np.dtype("f4"), 3)
    assert [text.partition(" of ")[0] for text in caplog.messages] == ["allreduce", "bcast"]


def test_through_the_host_nothing_waits_for_another_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(aware.VARIABLE, "1")
    made = plans(through_host=True)
    assert made.why_no_peers == made.why_no_nccl == MAY_END and not made.has_local_nccl
    assert isinstance(made.transport(), StagedTransport) and isinstance(plans().transport(), DirectTransport)
    assert (
        made.how
        == f"on a fake GPU; MPI takes copies in pinned memory; between ranks of a node: no CUDA IPC ({MAY_END})"
    )
    assert plans().how == "on a fake GPU; MPI takes device pointers; between ranks of a node: CUDA IPC"
