"""--mirror-every: the root is lost, and the others go on from its mirror as a run that is resumed there."""

from __future__ import annotations

import re

import pytest

from scaffe.errors import RanksLostError

pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own


def stages(ranks: int, left: int, at: int) -> str:
    """Return the stages of a training that goes on at an iteration with the ranks that are left."""
    return f"{ranks},0,{at} {left},{at},9" if at else f"{left},0,9"


@pytest.mark.parametrize(
    ("ranks", "moments", "every", "taken", "flags", "fields"),
    [
        (3, "0 half-sent 4", 2, [2], ("--workflow", "SC-OBR", "--drive", "helper"), {}),
        (3, "0 unsent 6", 3, [3], ("--workflow", "SC-B"), {"type": "Adam", "momentum2": 0.999}),
        (3, "0 half-sent 1", 1, [0], ("--workflow", "SC-OB"), {}),  # that of iteration 0 is the buddy's own state
        (4, "1 forward 3; 0 unsent 4", 2, [3], ("--workflow", "SC-OBR", "--drive", "hook"), {}),
        (4, "2 backward 5; 0 Shrink._put_back 1", 1, [4, 5], ("--workflow", "SC-OBR"), {}),
    ],
)
def test_without_the_root_they_go_on_from_its_newest_whole_mirror(runs, ranks, moments, every, taken, flags, fields):
    result, last = runs.losing(ranks, moments, *flags, "--mirror-every", every, **fields)
    assert result.returncode == 0, result.stderr
    (found,) = map(int, re.findall(r"The root's mirror of iteration (\d+) is taken", result.stderr))
    assert found in taken
    left = ranks - len(moments.split(";"))
    assert last == runs.stages(stages(ranks, left, found), *flags, **fields)


def test_a_snapshot_that_is_newer_than_the_mirror_is_taken(runs):
    result, last = runs.losing(3, "0 backward 5", "--mirror-every", 3, "--no-snapshot-async", snapshot=4)
    assert result.returncode == 0, result.stderr
    assert "Restored iteration 4 from snap_iter_4.solverstate" in result.stderr
    assert last == runs.stages("3,0,4 2,4,9")


@pytest.mark.parametrize(
    ("ranks", "moments", "at", "flags"),
    [
        (3, "0 update 0", 0, ("--workflow", "SC-OBR", "--drive", "helper", "--bucket-bytes", "0")),
        (4, "1 forward 3; 0 update 3", 3, ("--workflow", "SC-OB")),
    ],
    ids=["of the job", "after a recovery"],
)
def test_in_an_iteration_that_all_ranks_begin_with_the_state_the_root_is_not_missed(runs, ranks, moments, at, flags):
    result, last = runs.losing(ranks, moments, *flags)
    assert result.returncode == 0, result.stderr
    assert f"they go on at iteration {at} after" in result.stderr
    assert last == runs.stages(stages(ranks, 2, at), *flags)


def test_without_the_root_and_a_mirror_the_job_ends_with_one_line(runs):
    result, _ = runs.losing(3, "0 backward 5 follow; 1 backward 5", "--mirror-every", 1)  # the mirror is lost first
    assert result.returncode == RanksLostError.exit_code, result.stderr
    told = "the root and its solver's history are lost; there is no snapshot of snap"
    assert result.stderr.count(told) == 1 and "Traceback" not in result.stderr
