"""--mirror-every: the root is lost, and the others go on from its mirror as a run that is resumed there."""

from __future__ import annotations

import re

import pytest

from scaffe.errors import RanksLostError

pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own


@pytest.mark.parametrize(
    ("ranks", "moments", "every", "taken", "flags", "fields"),
    [
        (3, "0 half-sent 4", 2, [2], ("--workflow", "SC-OBR", "--drive", "helper"), {}),
        (3, "0 unsent 6", 3, [3], ("--workflow", "SC-B"), {"type": "Adam", "momentum2": 0.999}),
        (4, "1 forward 3; 0 unsent 4", 2, [3], ("--workflow", "SC-OBR", "--drive", "hook"), {}),
        (4, "2 backward 5; 0 Solver._carry 1", 1, [4, 5], ("--workflow", "SC-OBR"), {}),
    ],
)
def test_without_the_root_they_go_on_from_its_newest_whole_mirror(runs, ranks, moments, every, taken, flags, fields):
    result, last = runs.losing(ranks, moments, *flags, "--mirror-every", every, **fields)
    assert result.returncode == 0, result.stderr
    (found,) = map(int, re.findall(r"The root's mirror of iteration (\d+) is taken", result.stderr))
    assert found in taken
    left = ranks - len(moments.split(";"))
    assert last == runs.stages(f"{ranks},0,{found} {left},{found},9", *flags, **fields)


def test_a_snapshot_that_is_newer_than_the_mirror_is_taken(runs):
    result, last = runs.losing(3, "0 backward 5", "--mirror-every", 3, snapshot=4)
    assert result.returncode == 0, result.stderr
    assert "Restored iteration 4 from snap_iter_4.solverstate" in result.stderr
    assert last == runs.stages("3,0,4 2,4,9")


@pytest.mark.parametrize("moments", ["0 backward 5; 1 backward 5", "0 half-sent 0"], ids=["with its buddy", "at once"])
def test_without_the_root_and_a_mirror_the_job_ends_with_one_line(runs, moments):
    result, _ = runs.losing(3, moments, "--mirror-every", 1)
    assert result.returncode == RanksLostError.exit_code, result.stderr
    told = "the root and its solver's history are lost; there is no snapshot of snap"
    assert result.stderr.count(told) == 1 and "Traceback" not in result.stderr
