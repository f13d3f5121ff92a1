"""Cells of the matrix of faults: each job goes on, or ends clearly and is resumed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import lost_runs
import pytest

JOBS = Path(__file__).resolve().parents[2] / "jobs"
sys.path.append(str(JOBS))  # jobs are no package
import fault_cells  # noqa: E402
import fault_moments  # noqa: E402
import faults  # noqa: E402
from fault_jobs import Ended, Job, Part, Undisturbed, followed  # noqa: E402

SECONDS = 180  # of a job: on a shared machine ranks take turns
# Of 3 ranks, so that few undisturbed runs serve all; what other files of jobs_tests break at other moments is left out.
CELLS = [
    "kill,summary,root,SC-OBR-helper,3,3,async,shrink",
    "kill,restore,two,allreduce,3,-1,waiting,shrink",
    "stop,close,another,allreduce,3,3,async,spare",
    "stop,revoke,root,SC-OBR-helper,3,2,waiting,shrink",
    "kill,test,two,allreduce,3,2,async,stop",
    "exit,free,root,allreduce,3,3,async,shrink",
    "stop,set-up,two,SC-OBR-helper,3,-1,async,mirror",
    "stop,weights-written,root,SC-OBR-helper,3,2,waiting,spare",
    "kill,watched-set-up,two,SC-OBR-helper,3,-1,async,stop",
    "raise,last-records,root,SC-OBR-helper,3,3,waiting,spare",
    "exit,forward,another,allreduce,3,2,async,shrink",
    "kill,process,0+1,SC-B,3,-1,waiting,shrink",
]

pytestmark = [pytest.mark.mpi_skip, pytest.mark.watchdog(4 * SECONDS)]  # they start an mpirun of their own


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory, undisturbed: lost_runs.Undisturbed) -> faults.Matrix:
    """The matrix; what nothing disturbs is trained by ranks that have started already."""

    class Asked(Job):
        def train(self, workflow: str, ranks: int, *flags: str, **given: object) -> Ended:
            begin = re.findall(r"\d+", flags[-1])[0] if flags else 0  # of --snapshot
            stages, more = f"{ranks},{begin},{fault_cells.LAST}", fault_cells.WORKFLOWS[workflow]
            undisturbed.train(self.folder, stages, "--plan", "fixed", "--threads", 1, *self.flags, *more)
            return Ended(0, "")

    folder = tmp_path_factory.mktemp("faults")
    made = faults.Matrix(folder, SECONDS)
    made.undisturbed[fault_cells.NODE] = Undisturbed(folder / "undisturbed", SECONDS, Asked)
    return made


@pytest.mark.parametrize("text", CELLS)
def test_a_job_goes_on_or_ends_clearly_and_is_resumed(request, matrix: faults.Matrix, text: str) -> None:
    cell = fault_cells.Cell.parse(text)
    if cell.loss != fault_cells.ENDS:
        request.getfixturevalue("tolerant_mpirun")  # else skipped
    matrix.run(cell)


def test_the_matrix_has_each_fault_moment_and_workflow() -> None:
    cells = [cell for where in fault_cells.WHERE for cell in fault_cells.matrix(where)]
    assert {cell.fault for cell in cells} == set(fault_moments.FAULTS)
    assert {cell.moment for cell in cells} == set(fault_moments.MOMENTS)
    assert {cell.workflow for cell in cells} == set(fault_cells.WORKFLOWS)
    assert {cell.victims for cell in cells if cell.moment not in fault_moments.START} == set(fault_cells.VICTIMS)
    subsets = {(cell.moment, cell.victims) for cell in cells if cell.moment in fault_moments.START and cell.ranks == 3}
    assert subsets == {
        (moment, some) for moment in fault_moments.START for some in ["0", "1", "2", "0+1", "0+2", "1+2"]
    }
    assert {cell.loss for cell in cells} == set(fault_cells.LOSS)
    assert [fault_cells.Cell.parse(str(cell)) for cell in cells] == cells
    assert {*CELLS} <= {*map(str, cells)}


@pytest.mark.parametrize(
    ("text", "sides"),
    [
        ("cut,forward,root,SC-B,3,2,waiting,shrink,net", [{0}, {1, 2}]),
        ("cut,forward,another,SC-B,3,2,waiting,spare,net", [{2}, {0, 1, 3}]),
        ("cut,forward,another,SC-B,4,2,waiting,shrink,pairs", [{2, 3}, {0, 1}]),
        ("cut,forward,another,SC-B,3,2,waiting,shrink,pairs", [{2}, {0, 1}]),
        ("kill,forward,another,SC-B,3,2,waiting,shrink", [{0, 1, 2}]),
    ],
)
def test_a_cut_link_leaves_its_node_and_all_others(text: str, sides: list[set[int]]) -> None:
    assert fault_cells.Cell.parse(text).apart == sides


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        ([], [(0, 4)]),
        (["Lost rank 1 (process 7 on a), in set-up; last seen in set-up"], [(0, 3)]),
        (["Lost rank 1 (process 7 on a), in or after iteration 3", "Ranks left: 3; they go on at iteration 3"],
         [(0, 4), (3, 3)]),
        (["Ranks left: 3; they go on at iteration 3", "Ranks left: 2; they go on at iteration 2"], [(0, 4), (2, 2)]),
        (["Lost rank 0 (process 7 on a), in or after iteration 3", "Restored iteration 2 from snap"], [(0, 4), (2, 3)]),
        (["Ranks left: 3; they go on at iteration 6 after"], [(0, 4)]),
    ],
)  # fmt: skip
def test_the_parts_of_a_training_follow_from_its_log(lines: list[str], parts: list[tuple[int, int]]) -> None:
    assert list(faults.parts_of("\n".join(lines), 4)) == parts


def test_a_spare_takes_a_lost_ranks_place_after_the_set_up() -> None:
    lost, again = "Lost rank 1 (process 7 on a), in or after iteration 3", "Restored iteration 2 from snap"
    assert faults.parts_of(f"{lost}\n{again}", 3, spares=1) == (Part(0, 3),)
    assert faults.parts_of(f"{lost}\n{lost}\n{again}", 3, spares=1) == (Part(0, 3), Part(2, 2))
    assert faults.parts_of("Lost rank 1 (process 7 on a), in set-up", 3, spares=1) == (Part(0, 2),)


def test_a_loss_before_a_snapshot_is_restored_changes_nothing_before_it() -> None:
    lines = "Lost rank 1 (process 7 on a), in set-up", "Restored iteration 2 from snap"
    assert faults.parts_of("\n".join(lines), 3, resumed=True) == (Part(0, 3), Part(2, 2))


def test_a_job_resumed_on_as_many_ranks_has_no_part_of_its_own() -> None:
    assert followed((Part(0, 3), Part(4, 2)), Part(2, 3)) == (Part(0, 3),)


@pytest.mark.parametrize(
    ("log", "says"),
    [
        ("prterun noticed that process rank 1 with PID 7 on node a exited on\nsignal 9 (Killed).", True),
        ("scaffe: rank 0 has not moved for 2 s: update; missing:", True),
        ("scaffe: rank 0 on node1 is stopped: its process 7 has not run for 3 s", True),
        ("scaffe: rank 2 (process 7) on node1 has ended, which MPI does not report", True),
        ("scaffe: a rank on node1 has ended before all ranks had started; start the job again", True),
        ("signal 9\nTraceback (most recent call last):", False),
        ("Optimization Done.", False),
    ],
)
def test_a_clear_end_names_what_was_lost(log: str, says: bool) -> None:
    assert faults.says_why(log) is says
