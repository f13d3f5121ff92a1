"""Processes that a program starts itself train together, as the ranks of an mpirun do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nets
import numpy as np
import pytest

from scaffe.training.solver import Solver

# As Caffe's python/train.py: a process for each solver.
PROGRAM = """
import multiprocessing, os, signal, sys
import scaffe.pycaffe as caffe

def solve(file, uid, rank, count, ending):
    global ran
    caffe.set_mode_gpu()
    caffe.set_solver_count(count)
    caffe.set_solver_rank(rank)
    caffe.set_multiprocess(True)
    ran = solver = caffe.SGDSolver(file)
    nccl = caffe.NCCL(solver, uid)
    nccl.bcast()
    solver.add_callback(nccl)

    def end():
        if ending == "killed" and rank == 1 and solver.iter == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if ending == "raising" and rank == 1 and solver.iter == 2:
            raise ValueError("of the program")

    if ending:
        solver.add_callback(lambda: None, end)
    if ending == "diverging":
        solver.net.params["ip5"][0].data[...] = float("nan")
    solver.step(solver.param.max_iter)
    if rank == 0:
        solver.net.save("trained.caffemodel")

class OwnRun(multiprocessing.Process):
    def run(self):
        super().run()
        ran.step(1)  # it is not closed yet

if __name__ == "__main__":
    file, count, method, ending = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    if method:
        multiprocessing.set_start_method(method)
    uid = caffe.NCCL.new_uid()
    given = [(file, uid, rank, count, ending) for rank in range(count)]
    kind = OwnRun if ending == "own run" else multiprocessing.Process
    processes = [kind(target=solve, args=one, daemon=True) for one in given]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    print([process.exitcode for process in processes])
"""


FIELDS = {"max_iter": 6, "base_lr": 0.1}


def written(folder: Path, images: Path, program: bool = True) -> Path:
    """Write the program and its solver's file, whose path is returned."""
    if program:
        (folder / "program.py").write_text(PROGRAM)
    return nets.write_solver(folder, nets.tower(images, 6), **FIELDS)


def run(folder: Path, file: Path, count: int, method: str = "", ending: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "scratch").mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(folder / "scratch"), "GLOG_minloglevel": "2"}
    command = [sys.executable, "program.py", str(file), str(count), method, ending]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)


@pytest.fixture(scope="module")
def forked(images, tmp_path_factory) -> bytes:
    """The file of the parameters that two forked processes have trained."""
    folder = tmp_path_factory.mktemp("forked")
    ran = run(folder, written(folder, images), 2)
    assert ran.stdout.endswith("[0, 0]\n"), ran.stderr
    assert [*(folder / "scratch").iterdir()] == []
    return (folder / "trained.caffemodel").read_bytes()


def test_processes_train_as_one_with_all_their_batches(forked, images, tmp_path):
    """Each process reads every second batch, and their gradients are averaged."""
    (tmp_path / "trained.caffemodel").write_bytes(forked)
    alone = Solver(nets.solver_with(nets.tower(images, 12), **FIELDS))
    alone.step(FIELDS["max_iter"])
    theirs = alone.net.params["ip5"][0].data.copy()
    alone.net.copy_from(tmp_path / "trained.caffemodel")
    np.testing.assert_allclose(alone.net.params["ip5"][0].data, theirs, rtol=1e-4, atol=1e-6)
    alone.close()


def test_spawned_processes_have_the_bits_of_forked_ones(forked, images, tmp_path):
    assert run(tmp_path, written(tmp_path, images), 2, "spawn").stdout.endswith("[0, 0]\n")
    assert (tmp_path / "trained.caffemodel").read_bytes() == forked


def test_a_class_of_processes_may_run_otherwise(forked, images, tmp_path):
    ran = run(tmp_path, written(tmp_path, images), 2, "", "own run")
    assert ran.stdout.endswith("[0, 0]\n"), ran.stderr
    assert (tmp_path / "trained.caffemodel").read_bytes() == forked


@pytest.mark.parametrize("solvers", [1, 2])
def test_under_mpirun_the_ranks_are_the_solvers(forked, images, tmp_path, mpirun, solvers):
    """Each rank's program starts a process for itself alone, or for all: that of another rank ends at once."""
    file = written(tmp_path, images)
    ran = mpirun(2, sys.executable, tmp_path / "program.py", file, solvers, "", "", cwd=tmp_path)
    assert ran.stdout.count(str([0] * solvers)) == 2, ran.stderr
    assert (tmp_path / "trained.caffemodel").read_bytes() == forked


@pytest.mark.parametrize(("ending", "code", "told"), [("killed", -9, ""), ("raising", 1, "ValueError: of the program")])
def test_a_process_that_ends_early_ends_all(images, tmp_path, ending, code, told):
    ran = run(tmp_path, written(tmp_path, images), 2, "", ending)
    assert f"[1, {code}]" in ran.stdout, ran.stderr
    assert told in ran.stderr
    assert "rank 0: another process of the job has ended early, so this one ends too" in ran.stderr


def test_an_error_of_all_processes_is_reported_once(images, tmp_path):
    ran = run(tmp_path, written(tmp_path, images), 2, "", "diverging")
    assert ran.stdout.endswith("[2, 2]\n")
    assert ran.stderr.count("layer 'loss': the loss is not finite at iteration 0") == 1
    assert "Traceback" not in ran.stderr and "prterun" not in ran.stderr


def test_an_mpi_that_is_in_use_is_not_inherited(images, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM.replace("    uid =", "    caffe.SGDSolver(file).close()\n    uid ="))
    ran = run(tmp_path, written(tmp_path, images, program=False), 2)
    assert ran.stdout.endswith("[1, 1]\n")
    assert "MPI was started before this process: make solvers in the processes alone" in ran.stderr
