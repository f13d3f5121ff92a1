"""--spares K: spares take the places of lost ranks, and the run ends with what as many ranks compute without a loss."""

from __future__ import annotations

import sys

import pytest
from event_files import curves, events
from lost_runs import END, recoveries, running

pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own
PROGRAM = """
import sys
from scaffe import Solver
from scaffe.parallel.run import Run
solver = Solver("solver.prototxt", run=Run(on_rank_loss="shrink", spares=1))
solver.solve()
if "close" in sys.argv:
    solver.close()
print("at its end")
sys.exit(3)
"""


@pytest.mark.parametrize(
    ("moment", "flags"),
    [
        ("0 update 5", ("--workflow", "SC-OBR", "--sync", "allreduce", "--reduce", "ring")),
        ("0 Ending.finish_records 1", ("--workflow", "SC-B")),  # at the last snapshot they are set back to
    ],
)
def test_with_a_spare_the_run_computes_what_it_computes_without_a_loss(runs, moment, flags):
    result, last = runs.losing(4, moment, *flags, "--spares", 1)
    assert result.returncode == 0, result.stderr
    assert "a spare, takes the place of rank 0; 0 spare(s) are left" in result.stderr
    assert last == runs.stages("3,0,9", *flags)
    assert running(result) == []


def test_with_a_spare_several_owners_go_back_to_the_newest_snapshot(runs):
    flags = "--workflow", "SC-OBR", "--owners", "slices", "--reduce", "ring"
    result, last = runs.losing(4, "1 backward 5", *flags, "--spares", 1, snapshot=2)
    assert result.returncode == 0, result.stderr
    ((left, at, _),) = recoveries(result)
    assert left == 3 and at in (2, 4)
    assert last == runs.stages(f"3,0,{at} 3,{at},9", *flags, snapshot=2)
    assert running(result) == []


def test_a_spare_in_the_place_of_a_root_that_was_lost_in_set_up_takes_over_the_acting_roots_state(runs, tmp_path):
    """And its numbers, the norms of updates, too."""
    written = "--tensorboard", tmp_path / "runs", "--metrics", tmp_path / "run.prom", "--measure-every", 1
    result, last = runs.losing(5, "0 Parts._make_workflows 1; 2 backward 5", "--spares", 1, *written)
    assert result.returncode == 0, result.stderr
    assert "a spare, takes the place of rank 0; 0 spare(s) are left" in result.stderr
    assert recoveries(result) == [(3, 5, 1)]
    assert last == runs.stages("3,0,9")
    assert [step for step, _ in curves(tmp_path / "runs")["update_norm/ip1"]] == [*range(9)]
    acting, spare = ([event.step for event in events(path)] for path in sorted((tmp_path / "runs").iterdir()))
    assert max(acting) == 4 and min(spare[1:]) == 5  # its first record is the file's version


def test_without_another_spare_the_ranks_go_on_as_fewer(runs):
    in_a_row, last = runs.losing(4, "1 forward 4; 2 backward 6", "--spares", 1)
    joining, others = runs.losing(4, "1 forward 6; 3 Shrink._put_back 1", "--spares", 1)
    for result in (in_a_row, joining):
        assert result.returncode == 0, result.stderr
        assert recoveries(result)[-1][:2] == (2, 6)
    assert last == others == runs.stages("3,0,6 2,6,9")


def test_spares_that_are_not_needed_or_lost_leave_no_trace(runs):
    result, last = runs.losing(4, "2 Spares.wait 2", "--spares", 2)  # the first time it awaits the others' set-up
    assert result.returncode == 0, result.stderr
    assert result.stdout == "" and result.stderr.count("takes the place") == 0
    assert result.stderr.count("Lost a spare: process") == 1
    assert last == runs.stages("2,0,9")
    assert running(result) == []


def test_spares_end_with_the_exit_code_of_an_error(runs):
    result, _ = runs.losing(3, "", "--snapshot", "none.solverstate", "--spares", 1)
    assert result.returncode == 2, result.stderr
    assert result.stderr.count("none.solverstate") == 1 and "MPI_ABORT" not in result.stderr
    assert running(result) == []


@pytest.mark.parametrize("word", ["close", "leave open"])
def test_the_spares_of_a_program_of_ones_own_end_with_it(runs, word):
    folder = runs.write("program", END, {})
    result = runs.mpirun(3, "--with-ft", "ulfm", sys.executable, "-c", PROGRAM, word, cwd=folder)
    assert (result.returncode, result.stdout.count("at its end")) == (3, 2), result.stderr
