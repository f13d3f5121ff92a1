"""The sbatch scripts on a SLURM of our own: one that is stopped by a signal is queued again and goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

JOBS = Path(__file__).resolve().parents[2] / "jobs"

NET = """
name: "tiny"
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 8 dim: 4 } shape { dim: 8 } data_filler { type: "gaussian" } data_filler { value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = """
net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" display: 1 max_iter: 2000 snapshot_prefix: "tiny" solver_mode: CPU
"""

pytestmark = [pytest.mark.mpi_skip, pytest.mark.watchdog(700)]


def until(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Poll until the condition holds, and fail the test when it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"{what}: not within {seconds:g} s")
        time.sleep(0.1)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment in which sbatch and the like find a local SLURM."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    missing = [tool for tool in ("sbatch", "slurmctld", "slurmd", "munged") if not shutil.which(tool, path=path)]
    if missing:
        pytest.skip(f"no {', '.join(missing)} here (Debian: apt-get install --no-install-recommends slurm-wlm munge)")
    folder = tmp_path_factory.mktemp("slurm")
    command = folder / "bin/scaffe"  # as it is on PATH where scaffe is installed
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m scaffe "$@"\n')
    command.chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{command.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(JOBS.parent),
        "TMPDIR": str(folder),
        "SLURM_CONF": str(folder / f"scaffe-lab-{os.getuid()}/slurm/slurm.conf"),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    try:
        subprocess.run([JOBS / "lab/slurm-up.sh", "1"], env=env, check=True, timeout=900)
        yield env
    finally:
        subprocess.run([JOBS / "lab/slurm-down.sh"], env=env, check=True, timeout=900)


class Submitted:
    """A job of a batch script."""

    def __init__(self, env: dict[str, str], folder: Path, script: str, mpi: str, *flags: str):
        self.env, self.folder, self.log = env, folder, folder / "log"
        if mpi not in subprocess.run(["mpirun", "--version"], env=env, capture_output=True, text=True).stdout:
            pytest.skip(f"{script} needs another MPI than this environment's")
        (folder / "net.prototxt").write_text(NET)
        (folder / "solver.prototxt").write_text(SOLVER)
        size = ["--nodes=1", "--ntasks-per-node=2", "--cpus-per-task=1", *flags]
        submit = ["sbatch", "--parsable", *size, f"--output={self.log}", str(JOBS / script), "solver.prototxt"]
        self.job = self.ask(*submit).strip()

    def ask(self, *command: str) -> str:
        """Return what a command of SLURM prints."""
        return subprocess.run(command, env=self.env, cwd=self.folder, check=True, text=True, capture_output=True).stdout

    def state(self) -> str:
        """Return what SLURM says of the job."""
        return self.ask("scontrol", "show", "job", self.job)

    def check_it_goes_on(self) -> None:
        """Wait for the job's end, and check that it was queued again, and trained to the end."""
        until(lambda: self.job not in self.ask("squeue", "--noheader", "--format=%i").split(), "its end", 200)
        assert "JobState=COMPLETED" in self.state() and "Restarts=0" not in self.state(), self.log.read_text()
        assert (self.folder / "tiny_iter_2000.solverstate").exists()


SCRIPTS = pytest.mark.parametrize(("script", "mpi"), [("sbatch_openmpi.sh", "Open MPI"), ("sbatch_mpich.sh", "HYDRA")])


@SCRIPTS
def test_a_job_that_usr1_stops_is_queued_again_and_goes_on(slurm, tmp_path: Path, script: str, mpi: str) -> None:
    job = Submitted(slurm, tmp_path, script, mpi)
    until(lambda: job.log.exists() and "Iteration 20" in job.log.read_text(), "iteration 20")
    job.ask("scancel", "--signal=USR1", "--batch", job.job)
    job.check_it_goes_on()
    assert "Restored iteration" in job.log.read_text()


@SCRIPTS
def test_a_job_whose_time_ends_while_it_starts_is_queued_again(slurm, tmp_path: Path, script: str, mpi: str) -> None:
    job = Submitted(slurm, tmp_path, script, mpi, "--time=1", "--signal=B:USR1@60")  # at once: SLURM's steps are coarse
    until(lambda: "Restarts=0" not in job.state(), "its second start", 300)
    job.ask("scontrol", "update", f"JobId={job.job}", "TimeLimit=10")
    job.check_it_goes_on()


def test_tasks_that_srun_starts_without_mpi_are_noticed_and_told_once(slurm, tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    srun = ["srun", "--mpi=none", "-n", "3", "scaffe", "train", "--solver", "solver.prototxt"]
    run = subprocess.run(srun, env=slurm, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert run.returncode == 2
    assert run.stderr.count("the launcher started 3 processes but each is alone in its MPI world") == 1


def test_the_job_that_proves_a_cluster_runs_without_gpus(slurm, tmp_path: Path) -> None:
    size = [
        "--nodes=1",
        "--ntasks-per-node=2",
        "--cpus-per-task=1",
        "--gpus-per-node=0",
        f"--output={tmp_path / 'log'}",
    ]
    submit = ["sbatch", "--wait", *size, "jobs/prove_on_cluster.sbatch", str(tmp_path / "out")]
    env = {**slurm, "DEVICE": "cpu", "BYTES": "65536", "SCAFFE_VENV": sys.prefix}
    run = subprocess.run(submit, env=env, cwd=JOBS.parent, capture_output=True, text=True, timeout=900)
    log = (tmp_path / "log").read_text()
    steps = ["devices_n0", "bcast", "reduce", "allreduce", "reduce_scatter", "allgather", "lenet_root", "lenet_slices"]
    assert [line.split()[:2] for line in log.splitlines()[-8:]] == [[name, "passed"] for name in steps], log
    assert run.returncode == 0
    assert "65536 " in (tmp_path / "out/reduce.log").read_text()
    for owners in ("root", "slices"):
        assert "on 1,2 ranks; parameters" in (tmp_path / f"out/lenet_{owners}.log").read_text()
