"""Several reader threads, one reader for all ranks, and a job that ends early: nobody waits for anybody for ever."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import nets
import numpy as np
import pytest

from readers import encode, write_lmdb

SCAFFE = [sys.executable, "-m", "scaffe"]
READERS = {"each": ["--reader-threads", "4", "--prefetch", "6"], "single": ["--readers", "single"]}
READERS["single"] += READERS["each"]
SECONDS = 60  # far less than anything that waits for a lost rank, or thread, would take

pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which solver.prototxt trains for ever: batches of 8 of the 64 records in db."""
    nets.write_images(tmp_path / "db", 64, (1, 4, 4))
    (tmp_path / "net.prototxt").write_text(nets.softmax_regression("db"))
    (tmp_path / "solver.prototxt").write_text(
        'net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 100000000 random_seed: 1 display: 1 '
        'snapshot_prefix: "snap" snapshot_after_train: false\n'
    )
    return tmp_path


def damage(folder: Path, index: int) -> None:
    """Let a record be no Datum; its fellows stay what they are."""
    records = [(b"%08d" % i, encode(np.full((1, 4, 4), i, np.uint8), i % 10)) for i in range(64)]
    records[index] = (records[index][0], b"\xff" * 40)
    write_lmdb(folder / "db", records, replace=True)


PROGRAM = """
import os, signal, sys
from mpi4py import MPI
from scaffe.cli import main
from scaffe.layers.softmax_loss import SoftmaxWithLoss
rank, what, passes, forward = MPI.COMM_WORLD.rank, sys.argv[1], [], SoftmaxWithLoss.forward

def failing(self, bottom, top):
    forward(self, bottom, top)
    passes.append(1)
    if len(passes) == 5 and rank == int(sys.argv[2]):
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ArithmeticError("the layer fails here")

SoftmaxWithLoss.forward = failing
sys.exit(main(sys.argv[3:]))
"""


@pytest.mark.parametrize(
    ("what", "rank", "readers"),
    [("kill", 1, "each"), ("raise", 0, "each"), ("kill", 0, "single"), ("raise", 0, "single")],
)
def test_a_rank_that_ends_ends_the_job(mpirun, folder: Path, what: str, rank: int, readers: str) -> None:
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py", what, rank, "train", "--solver", "solver.prototxt", *READERS[readers]]
    run = mpirun(2, *command, cwd=folder, timeout=SECONDS)
    assert run.returncode != 0
    if what == "raise":
        assert run.stderr.count("ArithmeticError: the layer fails here") == 1


@pytest.mark.parametrize("readers", READERS)
def test_a_bad_record_met_by_a_reader_thread_ends_the_job_with_its_key(mpirun, folder: Path, readers: str) -> None:
    damage(folder, 37)
    run = mpirun(2, *SCAFFE, "train", "--solver", "solver.prototxt", *READERS[readers], cwd=folder, timeout=SECONDS)
    assert run.returncode != 0
    assert "record '00000037': 40 bytes that are not a Datum" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_job_that_is_told_to_stop_ends(mpirun, folder: Path) -> None:
    command = [*SCAFFE, "train", "--solver", "solver.prototxt", *READERS["single"]]
    process = mpirun.start(2, *command, cwd=folder, start_new_session=True)
    try:
        for line in process.stderr:
            if "Iteration 3," in line:
                break
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=900)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode != 0
