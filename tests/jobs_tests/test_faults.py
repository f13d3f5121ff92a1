"""Cells of the matrix of faults, drawn by a fixed seed: each job goes on, or ends clearly and is resumed."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import pytest

JOBS = Path(__file__).resolve().parents[2] / "jobs"
sys.path.append(str(JOBS))  # jobs are no package
import fault_cells  # noqa: E402
import fault_moments  # noqa: E402
import faults  # noqa: E402
from fault_jobs import Part, followed  # noqa: E402

SEED, COUNT = 46, 20
SECONDS = 600  # of a job: on a shared machine ranks take turns
CELLS = list(islice((cell for cell in fault_cells.drawn(SEED) if cell.is_quick), COUNT))

pytestmark = [pytest.mark.mpi_skip, pytest.mark.watchdog(4 * SECONDS)]  # they start an mpirun of their own


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> faults.Matrix:
    return faults.Matrix(tmp_path_factory.mktemp("faults"), SECONDS)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_job_goes_on_or_ends_clearly_and_is_resumed(mpirun, matrix: faults.Matrix, cell: fault_cells.Cell) -> None:
    if cell.loss != fault_cells.ENDS and "Open MPI" not in mpirun(1, "--version").stdout:
        pytest.skip("only Open MPI goes on without a rank")
    matrix.run(cell)


def test_the_matrix_has_each_fault_moment_and_workflow() -> None:
    cells = fault_cells.matrix()
    assert {cell.fault for cell in cells} == set(fault_moments.FAULTS)
    assert {cell.moment for cell in cells} == set(fault_moments.MOMENTS)
    assert {cell.workflow for cell in cells} == set(fault_cells.WORKFLOWS)
    assert {cell.victims for cell in cells} == set(fault_cells.VICTIMS)
    assert {cell.loss for cell in cells} == set(fault_cells.LOSS)
    assert [fault_cells.Cell.parse(str(cell)) for cell in cells] == cells


@pytest.mark.parametrize(
    ("log", "parts"),
    [
        ("", [(0, 4)]),
        ("2 rank(s) are left; they go on at iteration 3 after 0.1 s", [(0, 4), (3, 2)]),
        ("3 rank(s) are left; they go on at iteration 3 after\n2 rank(s) are left; they go on at iteration 2 after",
         [(0, 4), (2, 2)]),
        ("3 rank(s) are left; they go on at iteration 0 after", [(0, 3)]),
        ("3 rank(s) are left; they go on at iteration 6 after", [(0, 4)]),
    ],
)  # fmt: skip
def test_the_parts_of_a_training_follow_from_its_log(log: str, parts: list[tuple[int, int]]) -> None:
    assert list(faults.went_on(log, (Part(0, 4),))) == parts


def test_a_job_resumed_on_as_many_ranks_has_no_part_of_its_own() -> None:
    assert followed((Part(0, 3), Part(4, 2)), Part(2, 3)) == (Part(0, 3),)


@pytest.mark.parametrize(
    ("log", "says"),
    [
        ("prterun noticed that process rank 1 with PID 7 on node a exited on\nsignal 9 (Killed).", True),
        ("scaffe: rank 0 has not moved for 2 s: update; missing:", True),
        ("signal 9\nTraceback (most recent call last):", False),
        ("Optimization Done.", False),
    ],
)
def test_a_clear_end_names_what_was_lost(log: str, says: bool) -> None:
    assert faults.says_why(log) is says
