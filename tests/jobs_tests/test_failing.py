"""Failing on several ranks: one report, by whom it concerns, and an end for all within seconds."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import nets
import numpy as np
import pytest

from readers import encode, write_lmdb
from scaffe.monitor.spans import ITERATION
from scaffe.proto import Datum
from scaffe.timeline.trace import read_trace

SCAFFE = [sys.executable, "-m", "scaffe"]
TRAIN = [*SCAFFE, "train", "--solver", "solver.prototxt"]
SOLVER = 'net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 4 random_seed: 1 snapshot_prefix: "snap"\n'
SECONDS = 30  # far less than anything that waits for a lost rank would take

pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which solver.prototxt can be trained: batches of 8 of the 16 records in db."""
    return trainable(tmp_path)


def trainable(folder: Path, outputs: int = 10) -> Path:
    nets.write_images(folder / "db", 16, (1, 4, 4))
    (folder / "net.prototxt").write_text(nets.softmax_regression("db", outputs=outputs))
    (folder / "solver.prototxt").write_text(SOLVER)
    return folder


def put(folder: Path, index: int, record: bytes) -> None:
    """Let the record of that index be another one."""
    records = [encode(np.full((1, 4, 4), i, np.uint8), i % 10) for i in range(16)]
    records[index] = record
    write_lmdb(folder / "db", [(b"%08d" % i, value) for i, value in enumerate(records)], replace=True)


def reports(stderr: str) -> list[str]:
    """Return scaffe's own lines. Open MPI's mpirun ends its own with a NUL, which may come before one of ours."""
    return [line for line in stderr.replace("\0", "").splitlines() if line.startswith("scaffe: ")]


def aborted(run, code: int) -> bool:
    """Tell whether one rank ended the job with this code; MPICH's mpirun may give the signal that the others got."""
    return run.returncode in (code, signal.SIGKILL)


@pytest.fixture
def script(mpirun, folder: Path):
    """Run a Python program on some ranks, in `folder`; its end is awaited for SECONDS."""

    def run(text: str, *arguments: object, ranks: int = 2):
        path = folder / "program.py"
        path.write_text(text)
        return mpirun(ranks, sys.executable, path, *arguments, cwd=folder, timeout=SECONDS)

    return run


# All ranks meet the same error.

MAIN = """
import json, sys
from mpi4py import MPI
from scaffe.cli import main
for arguments in json.loads(sys.argv[1]):
    MPI.COMM_WORLD.Barrier()
    try:
        code = main(arguments)
    except SystemExit as end:
        code = end.code
    print(f"{MPI.COMM_WORLD.rank} {code}\\n", end="", flush=True)
"""
SET_UP = {
    "train --solver missing": "missing: no such file or directory",
    "train --solver solver.prototxt --weights missing": "rank 0: missing: no such file or directory",
    "train --solver solver.prototxt --weights w --snapshot s": "not both",
    "train --solver solver.prototxt --speed 9": "unrecognized arguments: --speed 9",
    "train --solver solver.prototxt --gpu first": "--gpu takes 'all' or ids such as 0,2, got 'first'",
    "train --solver net.prototxt": "net.prototxt: a net where a solver is expected; give the prototxt that",
    "test --model missing --weights w": "missing: no such file or directory",
    "test --model net.prototxt --weights w --iterations 0": "--iterations must be 1 or more, got 0",
    "train --solver bad_solver.prototxt": "layer 'ip' (InnerProduct): inner_product_param needs num_output, at least 1",
    "time --model bad.prototxt": "layer 'ip' (InnerProduct): inner_product_param needs num_output, at least 1",
    "extract-features w bad.prototxt ip f 1": "layer 'ip' (InnerProduct): inner_product_param needs num_output",
    "extract-features w net.prototxt ip f,g 1": "1 blob(s) ip for 2 output(s) f,g: name one for each",
}


@pytest.fixture(scope="module")
def set_up_errors(mpirun, tmp_path_factory: pytest.TempPathFactory):
    """Run all commands of SET_UP in one job of two ranks."""
    folder = trainable(tmp_path_factory.mktemp("set_up"))
    (folder / "bad.prototxt").write_text(nets.softmax_regression("db", outputs=0))
    (folder / "bad_solver.prototxt").write_text(SOLVER.replace("net.prototxt", "bad.prototxt"))
    commands = json.dumps([command.split() for command in SET_UP])
    return mpirun(2, sys.executable, "-c", MAIN, commands, cwd=folder, timeout=SECONDS)


def test_a_set_up_error_gives_every_rank_exit_code_2(set_up_errors) -> None:
    assert set_up_errors.returncode == 0
    assert sorted(line.strip() for line in set_up_errors.stdout.splitlines()) == ["0 2"] * len(SET_UP) + ["1 2"] * len(
        SET_UP
    )
    assert "Traceback" not in set_up_errors.stderr


@pytest.mark.parametrize(("place", "command"), list(enumerate(SET_UP)))
def test_a_set_up_error_is_told_once(set_up_errors, place: int, command: str) -> None:
    told = reports(set_up_errors.stderr)
    assert len(told) == len(SET_UP)
    assert SET_UP[command] in told[place]


def test_more_ranks_than_samples_are_refused_with_both_numbers(mpirun, folder: Path) -> None:
    (folder / "net.prototxt").write_text(nets.softmax_regression("db", batch=2))
    run = mpirun(3, *TRAIN, cwd=folder, timeout=SECONDS)
    assert run.returncode == 2
    [report] = reports(run.stderr)
    assert report.startswith("scaffe: layer 'images': 3 ranks for a batch of 2 samples")


def test_a_loss_that_is_not_finite_on_one_rank_is_told_once(mpirun, folder: Path) -> None:
    # Rank 1 reads the second half of each batch, so record 13 in iteration 1.
    put(folder, 13, Datum(channels=1, height=4, width=4, float_data=[float("inf")] * 16).SerializeToString())
    ways = "--workflow", "SC-OBR", "--drive", "helper", "--timeline", "t.json"
    run = mpirun(2, *TRAIN, *ways, cwd=folder, timeout=SECONDS)
    assert run.returncode == 2
    [report] = reports(run.stderr)
    assert "the loss is not finite at iteration 1, learning rate 0.01: no update was applied" in report
    for rank in read_trace(folder / "t.json").ranks.values():
        assert sum(span.kind == ITERATION for span in rank.spans) == 1


DIFFER = """
import os, sys, scaffe
from collectives import CollectiveError
from mpi4py import MPI
rank = MPI.COMM_WORLD.rank
for case in sys.argv[1:]:
    os.chdir(f"{case}/node{rank}")
    try:
        scaffe.get_solver("solver.prototxt")
    except CollectiveError as error:
        print(f"{case} on {rank}: {error}\\n", end="", flush=True)
    os.chdir("../..")
scaffe.get_solver(f"{sys.argv[1]}/node{rank}/solver.prototxt")
"""
DIFFERENCES = {
    "rate": ("solver.prototxt", "0.01", "0.02", "the solver: rank 0 has 'base_lr: 0.01', rank 1 has 'base_lr: 0.02'"),
    "seed": ("solver.prototxt", "random_seed: 1", "", "the solver: rank 0 has 'random_seed: 1', rank 1 has '"),
    "shape": ("net.prototxt", "t: 10", "t: 12", "the parameters: rank 0 has 'ip[0] (10, 16)', rank 1 has 'ip[0] (12, "),
    "batch": ("net.prototxt", "size: 8", "size: 9", "the nets: rank 0 has '    batch_size: 8', rank 1 has '    batch"),
}


def test_ranks_that_set_up_different_things_all_learn_both_values(script, folder: Path) -> None:
    for case, (path, old, new, _) in DIFFERENCES.items():
        for node in ("node0", "node1"):
            (folder / case / node).mkdir(parents=True)
            trainable(folder / case / node)
        other = folder / case / "node1" / path
        other.write_text(other.read_text().replace(old, new))
    run = script(DIFFER, *DIFFERENCES)
    assert run.returncode == 2
    for case, (_, _, _, said) in DIFFERENCES.items():
        for rank in (0, 1):
            assert f"{case} on {rank}: the ranks differ in {said}" in run.stdout
    [report] = reports(run.stderr)
    assert DIFFERENCES["rate"][-1] in report
    assert "Traceback" not in run.stderr


# One rank fails while the others wait for it.


@pytest.mark.parametrize(("index", "rank"), [(1, 0), (7, 2)])
def test_a_bad_record_ends_all_ranks_with_the_name_of_the_one_that_read_it(mpirun, folder: Path, index, rank) -> None:
    put(folder, index, encode(np.zeros((1, 5, 5), np.uint8), 0))
    run = mpirun(3, *TRAIN, cwd=folder, timeout=SECONDS)
    assert aborted(run, 2)
    [report] = reports(run.stderr)
    assert report.startswith(f"scaffe: rank {rank}: db: record '0000000{index}' is 1 x 5 x 5, but")
    assert "Traceback" not in run.stderr


RAISES = """
import sys, scaffe
solver = scaffe.get_solver("solver.prototxt")
solver.step(1)
if solver.world.rank == int(sys.argv[1]):
    raise RuntimeError("a defect")
solver.step(1)
"""


@pytest.mark.parametrize(("rank", "ranks"), [(0, 3), (1, 2)])
def test_an_exception_on_one_rank_ends_all_with_its_traceback(script, rank: int, ranks: int) -> None:
    run = script(RAISES, rank, ranks=ranks)
    assert aborted(run, 1)
    assert reports(run.stderr) == [f"scaffe: rank {rank}: Traceback (most recent call last):"]
    assert 'program.py", line 6, in <module>' in run.stderr
    assert run.stderr.count("RuntimeError: a defect") == 1


KILLED = """
import os, signal, sys, scaffe
solver = scaffe.get_solver("solver.prototxt")
solver.step(1)
if solver.world.rank == int(sys.argv[1]):
    os.kill(os.getpid(), signal.SIGKILL)
solver.step(1)
print("not reached")
"""


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed_ends_the_job(script, rank: int) -> None:
    run = script(KILLED, rank)
    assert run.returncode != 0
    assert "not reached" not in run.stdout


READER_DIES = """
import scaffe, readers
solver = scaffe.get_solver("solver.prototxt")
def fill(self, number, batch):
    raise RuntimeError("a defect of the reader")
if solver.world.rank == 1:
    readers.BatchReader.fill = fill
solver.step(1)
"""


def test_a_reader_thread_that_dies_ends_all_ranks_with_its_traceback(script) -> None:
    run = script(READER_DIES)
    assert aborted(run, 1)
    assert len(reports(run.stderr)) == 1
    assert "scaffe: rank 1: Traceback" in run.stderr
    assert "batch_queue.py" in run.stderr and "RuntimeError: a defect of the reader" in run.stderr


LEAVES = """
import sys, scaffe
from scaffe.monitor.watching import Watching

solver = scaffe.get_solver("solver.prototxt", watching=Watching(stall_seconds=2))

def leave():
    if solver.iter == 1 and solver.world.rank in map(int, sys.argv[1:]):
        sys.exit(0)

solver.add_callback(leave, lambda: None)
solver.step(3)
print("not reached")
"""


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_whose_callback_exits_ends_the_job_once_another_has_waited_for_it(script, rank: int) -> None:
    run = script(LEAVES, rank)
    assert run.returncode != 0 and "not reached" not in run.stdout
    [report] = reports(run.stderr)
    who = rf"scaffe: rank {rank} on \S+ has ended while rank {1 - rank} waits for it"
    assert re.fullmatch(rf"{who}: .*, at the end of its program, iteration \d", report)


def test_ranks_whose_callbacks_all_exit_end_well(script) -> None:
    run = script(LEAVES, 0, 1)
    assert (run.returncode, run.stdout, reports(run.stderr)) == (0, "", [])
