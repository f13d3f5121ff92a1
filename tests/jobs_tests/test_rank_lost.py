"""--on-rank-loss shrink: the ranks that are left go on, and end with what a resumed run of so many ranks computes."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import dying
import nets
import pytest

from scaffe.errors import RanksLostError, ScaffeError
from scaffe.parallel.run import Run

SECONDS = 60
END = 9  # iterations
pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own
DATA = """
layer {{ name: "images" type: "Data" top: "data" top: "label" include {{ phase: {phase} }}
  transform_param {{ scale: 0.004 crop_size: 9 mirror: true }}
  data_param {{ source: "{source}" batch_size: 12 backend: LMDB }} }}
"""
LAYERS = """
name: "lost"
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "norm" type: "BatchNorm" bottom: "conv" top: "norm" batch_norm_param { moving_average_fraction: 0.7 } }
layer { name: "ip1" type: "InnerProduct" bottom: "norm" top: "ip1"
  inner_product_param { num_output: 16 weight_filler { type: "xavier" } } }
layer { name: "drop" type: "Dropout" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""


class Runs:
    """Trainings of a small net in a folder: with ranks that are lost, and the same in stages without any loss."""

    def __init__(self, mpirun, folder: Path, data: Path):
        self.mpirun, self.folder = mpirun, folder
        self.net = "".join(DATA.format(phase=phase, source=data) for phase in ("TRAIN", "TEST")) + LAYERS

    def write(self, name: str, end: object, fields: dict[str, object]) -> Path:
        """Write the solver file of a run to a folder of its own, which is returned."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        path = nets.write_solver(
            folder, self.net, max_iter=END, snapshot_after_train=True, snapshot_prefix="snap", **fields
        )
        path.write_text(path.read_text().replace(f"max_iter: {END}\n", f"max_iter: {end}\n"))
        return folder

    def losing(self, ranks: int, moments: str, *flags: str, **fields):
        """Return the process of a run with these moments, and its last weights and state."""
        folder = self.write("losing", END, fields)
        command = sys.executable, "-m", "mpi4py", dying.__file__, moments, "train", "--solver", "solver.prototxt"
        shrink = "--on-rank-loss", "shrink"
        result = self.mpirun(ranks, "--with-ft", "ulfm", *command, *shrink, *flags, cwd=folder, timeout=SECONDS)
        return result, files(folder)

    def stages(self, stages: str, *flags: str, moments: str = "", **fields):
        """Return the last weights and state of a run in stages: "4,0,5 3,5,9" of 4 ranks to iteration 5, then 3."""
        folder = self.write("stages", "END", fields)
        command = sys.executable, "-m", "mpi4py", dying.__file__, moments, "stages", stages
        result = self.mpirun(max(int(one[0]) for one in stages.split()), *command, *flags, cwd=folder, timeout=SECONDS)
        assert result.returncode == 0, result.stderr
        return files(folder)


def files(folder: Path) -> list[bytes]:
    """Return the last weights and state, b"" for those that are not there."""
    paths = [folder / f"snap_iter_{END}.{kind}" for kind in ("caffemodel", "solverstate")]
    return [path.read_bytes() if path.exists() else b"" for path in paths]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return nets.write_images(tmp_path_factory.mktemp("lost") / "db", shape=(1, 12, 12))


@pytest.fixture
def runs(tolerant_mpirun, tmp_path: Path, data: Path) -> Runs:
    return Runs(tolerant_mpirun, tmp_path, data)


def recoveries(result) -> list[tuple[int, int, int]]:
    """Return, of each recovery, how many ranks were left, their iteration, and how many iterations were redone."""
    said = r"Ranks left: (\d+); they go on at iteration (\d+) after \S+ s; iterations redone: (\d+)"
    return [(int(ranks), int(at), int(redone)) for ranks, at, redone in re.findall(said, result.stderr)]


def stages_of(ranks: int, result) -> str:
    """Return the stages that a run went through which began on so many ranks."""
    begin, stages = 0, []
    for left, at, _ in recoveries(result):
        stages.append((ranks, begin, at))
        ranks, begin = left, at
    return " ".join(f"{ranks},{begin},{end}" for ranks, begin, end in [*stages, (ranks, begin, END)] if begin < end)


CHAIN = "--workflow", "SC-OBR", "--bucket-bytes", "0", "--reduce", "chain"
HELPER = "--workflow", "SC-OBR", "--drive", "helper"
ALLREDUCE = "--workflow", "SC-OBR", "--sync", "allreduce", "--reduce", "ring"
TESTED = {"test_iter": [4], "test_interval": 3, "display": 1}


@pytest.mark.parametrize(
    ("begins", "moments", "flags", "fields"),
    [
        (3, "3 Solver._make_workflows 1; 2 backward 3; 1 Solver._free 1", CHAIN, {}),
        (4, "1 loss 4; 3 backward 4; 2 update 6", HELPER, {}),
        (4, "0 backward 3; 1 update 5; 2 forward 7", (*ALLREDUCE, "--bucket-bytes", "0"), TESTED),
        (4, "1 test 3; 2 forward 3", ("--workflow", "SC-B"), {**TESTED, "iter_size": 2}),
    ],
)
def test_the_ranks_that_are_left_go_on_as_a_resumed_run_does(runs, begins, moments, flags, fields):
    result, last = runs.losing(4, moments, *flags, **fields)
    assert result.returncode == 0, result.stderr
    assert last == runs.stages(stages_of(begins, result), *flags, **fields)
    assert result.stderr.count("Lost rank") == moments.count(";") + 1
    assert len(re.findall(r"iteration \d; last seen in .* pass", result.stderr)) >= 1
    assert max(redone for *_, redone in recoveries(result)) == 1
    assert result.stderr.count("Test net output #0") == (4 if "test_iter" in fields else 0)


def test_a_false_alarm_changes_nothing(runs):
    result, last = runs.losing(3, "0 Solver._make_workflows 1 alarm; 1 backward 4 alarm", *HELPER)
    assert result.returncode == 0, result.stderr
    assert last == runs.stages("3,0,9", *HELPER)
    assert recoveries(result) == [(3, 4, 1)]
    assert result.stderr.count("but none is lost: all ranks go on") == 2


@pytest.mark.parametrize(
    ("moments", "left"),
    [
        ("1 backward 4; 2 Carried.share 1; 3 Solver._plan 2", 1),
        ("0 backward 4; 1 Solver._take_over 1", 2),
        ("3 loss 4; 0 Carried.give 1; 1 Solver._make_workflows 3", 1),
    ],
)
def test_any_number_of_ranks_may_be_lost_while_the_others_recover(runs, moments, left):
    result, last = runs.losing(4, moments, *ALLREDUCE)
    assert result.returncode == 0, result.stderr
    assert recoveries(result) == [(left, 4, 1)]
    assert last == runs.stages(f"4,0,4 {left},4,9", *ALLREDUCE)


def test_after_the_last_iteration_nothing_is_repeated_that_was_done(runs):
    moments = "3 display.end 1; 2 snapshot 8; 1 test 9"
    result, last = runs.losing(4, moments, **TESTED)
    assert result.returncode == 0, result.stderr
    assert recoveries(result) == [(3, 9, 0), (2, 9, 0), (1, 9, 0)]
    assert last == runs.stages("4,0,9", **TESTED)
    assert result.stderr.count("Test net output #0") == 4


@pytest.mark.parametrize(
    ("moments", "flags"),
    [
        ("0 update 5; 1 Solver.restore 1", ()),
        ("0 snapshot 8", ()),  # the last one: they train again from the one before
    ],
)
def test_without_the_root_they_go_back_to_the_newest_snapshot(runs, moments, flags):
    fields = {**TESTED, "snapshot": 2}  # the one of iteration 2 is complete when that of iteration 4 begins
    result, last = runs.losing(3, moments, *flags, **fields)
    assert result.returncode == 0, result.stderr
    ((left, at, _),) = recoveries(result)
    assert f"Restored iteration {at} from snap_iter_{at}.solverstate" in result.stderr
    assert last == runs.stages(f"3,0,{at} {left},{at},9", *flags, **fields)


def test_the_log_has_the_global_batch_of_all_passes(runs):
    result, _ = runs.losing(3, "2 forward 3", "--scal", "weak", iter_size=2)
    assert result.returncode == 0, result.stderr
    assert "Global batch 72: 36 sample(s) in each of 2 pass(es)" in result.stderr
    assert "The global batch is now 48 sample(s); the learning rate stays as given" in result.stderr


def test_a_request_of_a_lost_rank_is_granted(runs):
    result, last = runs.losing(3, "1 forward 5 hup; 1 snapshot 5; 2 Carried.share 1", "--snapshot-budget", "3%")
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("Snapshotting to binary proto file snap_iter_6.caffemodel") == 1
    assert last == runs.stages("3,0,6 1,6,9")


def test_what_a_callback_has_written_into_parameters_is_put_back(runs):
    decay = "* Solver.step 0 decay"
    result, last = runs.losing(3, f"{decay}; 1 backward 5", "--stall-seconds", "9")
    assert result.returncode == 0, result.stderr
    assert last == runs.stages("3,0,5 2,5,9", moments=decay)


@pytest.mark.parametrize(
    ("moments", "flags", "told"),
    [
        ("1 forward 2", ("--min-ranks", "3"), "ranks left: 2, fewer than --min-ranks 3"),
        ("0 forward 2", (), "the root and its solver's history are lost; there is no snapshot of snap"),
    ],
)
def test_ranks_that_cannot_go_on_end_with_an_exit_code_of_their_own(runs, moments, flags, told):
    result, _ = runs.losing(3, moments, *flags)
    assert result.returncode == RanksLostError.exit_code, result.stderr
    assert result.stderr.count(told) == 1 and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "moments",
    [
        "2 Solver._make_workflows 1 raise",
        "1 forward 2; 2 Solver._rebuild_from 1 raise",
        "1 forward 2; 2 Solver.test_all 1; 0 Carried.give 1 raise",
        "1 forward 2; 0 Solver._shrink 1 raise",
        "2 display.end 1 raise",
    ],
)
def test_an_exception_ends_the_job_with_its_traceback(runs, moments):
    result, _ = runs.losing(3, moments)
    assert result.returncode == 1, result.stderr
    assert result.stderr.count("ZeroDivisionError: boom") == 1


def test_a_job_that_ends_with_any_of_its_ranks_is_refused(mpirun, tmp_path, data):
    net = nets.write_solver(tmp_path, nets.softmax_regression(data))
    result = mpirun(2, sys.executable, "-m", "scaffe", "train", "--solver", net, "--on-rank-loss", "shrink")
    assert result.returncode == 2
    assert result.stderr.count("--on-rank-loss shrink: this job ends with any of its ranks") == 1


def test_fewer_than_one_rank_is_refused():
    with pytest.raises(ScaffeError, match="min_ranks must be 1 or more, got 0"):
        Run(min_ranks=0)
