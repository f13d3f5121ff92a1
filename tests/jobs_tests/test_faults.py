"""Cells of the matrix of faults, drawn by a fixed seed: each job ends clearly, and is resumed to the same bits."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import pytest

JOBS = Path(__file__).resolve().parents[2] / "jobs"
sys.path.append(str(JOBS))  # jobs are no package
import fault_moments  # noqa: E402
import faults  # noqa: E402

SEED, COUNT = 46, 12
SECONDS = 600  # of a job: on a shared machine ranks take turns
CELLS = list(islice((cell for cell in faults.drawn(SEED) if cell.ranks == 3), COUNT))

pytestmark = [pytest.mark.mpi_skip, pytest.mark.watchdog(4 * SECONDS)]  # they start an mpirun of their own


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> faults.Matrix:
    return faults.Matrix(tmp_path_factory.mktemp("faults"), SECONDS)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_job_ends_clearly_and_is_resumed_to_the_same_bits(matrix: faults.Matrix, cell: faults.Cell) -> None:
    assert matrix.run(cell) == ""


def test_the_matrix_has_each_fault_moment_and_workflow() -> None:
    cells = faults.matrix()
    assert {cell.fault for cell in cells} == set(fault_moments.FAULTS)
    assert {cell.moment for cell in cells} == set(fault_moments.MOMENTS)
    assert {cell.workflow for cell in cells} == set(faults.WORKFLOWS)
    assert [faults.Cell.parse(str(cell)) for cell in cells] == cells


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
