"""--on-rank-loss shrink: the ranks that are left go on, and end with what a resumed run of so many ranks computes."""

from __future__ import annotations

import re
import sys

import nets
import pytest
from lost_runs import recoveries, stages_of

from scaffe.errors import RanksLostError, ScaffeError
from scaffe.parallel.run import Run

pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own
CHAIN = "--workflow", "SC-OBR", "--bucket-bytes", "0", "--reduce", "chain"
HELPER = "--workflow", "SC-OBR", "--drive", "helper"
ALLREDUCE = "--workflow", "SC-OBR", "--sync", "allreduce", "--reduce", "ring"
LEADERS = "--workflow", "SC-OBR", "--sync", "allreduce", "--reduce", "leaders-ring"
INSTANCES = "--instances", "2", "--gather", "slices", "--oversubscribe"
AUTO = "--instances", "auto", "--gather", "slices", "--oversubscribe"
ON_GPUS = "* World.take_gpu 1 gpu"
ON_NODES = "* World.take_gpu 1 gpus"  # two GPUs on each, until one is lost
HELPED = "--drive", "helper"
REFERENCE = "--engine", "reference"
TESTED = {"test_iter": [4], "test_interval": 3, "display": 1}


@pytest.mark.parametrize(
    ("begins", "moments", "flags", "fields"),
    [
        (3, "3 Parts._make_workflows 1; 2 backward 3; 1 Parts.free 1", CHAIN, {}),
        (4, "1 loss 4; 3 backward 4; 2 update 6", HELPER, {}),
        (4, "0 backward 3; 1 update 5; 2 forward 7", (*ALLREDUCE, "--bucket-bytes", "0"), TESTED),
        (4, "1 test 3; 2 forward 3", ("--workflow", "SC-B"), {**TESTED, "iter_size": 2}),
        (4, "0 backward 3; 2 forward 3", (*ALLREDUCE, *INSTANCES), TESTED),
        (4, f"{ON_GPUS}; 2 backward 3; 1 forward 5", (*CHAIN, *HELPED, *REFERENCE), TESTED),
        (4, f"{ON_GPUS}; 0 update 3; 2 backward 6", (*ALLREDUCE, *REFERENCE), {}),
        (4, f"{ON_NODES}; 1 backward 3", ("--bucket-bytes", "0", *HELPED, *REFERENCE), {}),
        (4, f"{ON_NODES}; 1 backward 4", (*LEADERS, "--bucket-bytes", "0", *HELPED, *REFERENCE), {}),
    ],
)
def test_the_ranks_that_are_left_go_on_as_a_resumed_run_does(runs, begins, moments, flags, fields):
    result, last = runs.losing(4, moments, *flags, **fields)
    assert result.returncode == 0, result.stderr
    on_gpus = next((one for one in (ON_NODES, ON_GPUS) if one in moments), "")
    assert last == runs.stages(stages_of(begins, result), *flags, moments=on_gpus, **fields)
    assert result.stderr.count("Lost rank") == moments.count(";") + (not on_gpus)
    assert len(re.findall(r"iteration \d; last seen in .* pass", result.stderr)) >= 1
    assert max(redone for *_, redone in recoveries(result)) == 1
    assert result.stderr.count("Test net output #0") == (4 if "test_iter" in fields else 0)


def test_a_false_alarm_changes_nothing(runs):
    result, last = runs.losing(3, "0 Parts._make_workflows 1 alarm; 1 backward 4 alarm", *HELPER)
    assert result.returncode == 0, result.stderr
    assert last == runs.stages("3,0,9", *HELPER)
    assert recoveries(result) == [(3, 4, 1)]
    assert result.stderr.count("but none is lost: all ranks go on") == 2


@pytest.mark.parametrize(
    ("moments", "left"),
    [
        ("1 backward 4; 2 StateTransfer.share 1; 3 Parts.plan 2", 1),
        ("0 backward 4; 1 Shrink._take_over 1", 2),
        ("3 loss 4; 0 StateTransfer.give 1; 1 Parts._make_workflows 3", 1),
    ],
)
def test_any_number_of_ranks_may_be_lost_while_the_others_recover(runs, moments, left):
    result, last = runs.losing(4, moments, *ALLREDUCE)
    assert result.returncode == 0, result.stderr
    assert recoveries(result) == [(left, 4, 1)]
    assert last == runs.stages(f"4,0,4 {left},4,9", *ALLREDUCE)


def test_instances_that_are_timed_are_timed_again(runs):
    moments = "* Solver._set_up 1 cores; 1 backward 1; 2 Parts.build 3"  # the 3rd time for other instances
    result, _ = runs.losing(3, moments, *AUTO)
    assert result.returncode == 0, result.stderr
    assert recoveries(result) == [(2, 1, 1), (1, 7, 0)]
    assert result.stderr.count("Instances: timed again, on") == 2


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
        ("0 update 5; 1 Checkpoints.restore 1", ()),
        ("0 backward 5", ("--workflow", "SC-B", *INSTANCES)),
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


@pytest.mark.parametrize(
    ("moments", "flags"),
    [
        ("1 backward 5", ("--owners", "spread", *CHAIN)),
        ("0 backward 5; 1 Checkpoints.restore 1", ("--owners", "slices", "--workflow", "SC-OBR", "--reduce", "ring")),
        ("2 update 5", ("--owners", "spread", "--workflow", "SC-B")),
        ("1 forward 0", ("--owners", "spread", *CHAIN)),  # before the first snapshot: a history of zeros
    ],
)
def test_with_several_owners_they_go_back_to_the_newest_snapshot(runs, moments, flags):
    fields = {**TESTED, "snapshot": 2}
    result, last = runs.losing(3, moments, *flags, **fields)
    assert result.returncode == 0, result.stderr
    ((left, at, _),) = recoveries(result)
    assert last == runs.stages(f"3,0,{at} {left},{at},9", *flags, **fields)


def test_the_log_has_the_global_batch_of_all_passes(runs):
    result, _ = runs.losing(3, "2 forward 3", "--scal", "weak", iter_size=2)
    assert result.returncode == 0, result.stderr
    assert "Global batch 72: 36 sample(s) in each of 2 pass(es)" in result.stderr
    assert "The global batch is now 48 sample(s); the learning rate stays as given" in result.stderr


def test_a_request_of_a_lost_rank_is_granted(runs):
    moments = "1 forward 5 hup; 1 snapshot 5; 0 snapshot 5 await; 2 StateTransfer.share 1"  # before the root writes it
    result, last = runs.losing(3, moments, "--snapshot-budget", "3%")
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
        "2 Parts._make_workflows 1 raise",
        "1 forward 2; 2 Shrink._rebuild 1 raise",
        "1 forward 2; 2 Solver.test_all 1; 0 StateTransfer.give 1 raise",
        "1 forward 2; 0 Shrink._shrink 1 raise",
        "2 display.end 1 raise",
    ],
)
def test_an_exception_ends_the_job_with_its_traceback(runs, moments):
    result, _ = runs.losing(3, moments)
    assert result.returncode == 1, result.stderr
    assert result.stderr.count("ZeroDivisionError: boom") == 1


def test_a_job_that_ends_with_any_of_its_ranks_is_refused(mpirun, tmp_path, images):
    net = nets.write_solver(tmp_path, nets.softmax_regression(images))
    result = mpirun(2, sys.executable, "-m", "scaffe", "train", "--solver", net, "--on-rank-loss", "shrink")
    assert result.returncode == 2
    assert result.stderr.count("--on-rank-loss shrink: this job ends with any of its ranks") == 1


def test_fewer_than_one_rank_is_refused():
    with pytest.raises(ScaffeError, match="min_ranks must be 1 or more, got 0"):
        Run(min_ranks=0)
