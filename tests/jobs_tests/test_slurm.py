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

pytestmark = [pytest.mark.mpi_skip, pytest.mark.watchdog(180)]


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


@pytest.mark.parametrize(("script", "mpi"), [("sbatch_openmpi.sh", "Open MPI"), ("sbatch_mpich.sh", "HYDRA")])
def test_a_job_that_usr1_stops_is_queued_again_and_goes_on(slurm, tmp_path: Path, script: str, mpi: str) -> None:
    version = subprocess.run(["mpirun", "--version"], env=slurm, capture_output=True, text=True)
    if mpi not in version.stdout:
        pytest.skip(f"{script} needs another MPI than this environment's")
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    log = tmp_path / "log"

    def ask(*command: str) -> str:
        return subprocess.run(command, env=slurm, cwd=tmp_path, check=True, text=True, capture_output=True).stdout

    size = ["--nodes=1", "--ntasks-per-node=2", "--cpus-per-task=1"]
    job = ask("sbatch", "--parsable", *size, f"--output={log}", str(JOBS / script), "solver.prototxt").strip()
    until(lambda: log.exists() and "Iteration 20" in log.read_text(), "iteration 20")
    ask("scancel", "--signal=USR1", "--batch", job)
    until(lambda: job not in ask("squeue", "--noheader", "--format=%i").split(), "the end of the job", 100)

    state = ask("scontrol", "show", "job", job)
    assert "JobState=COMPLETED" in state and "Restarts=1" in state, log.read_text()
    assert "Restored iteration" in log.read_text()
    assert (tmp_path / "tiny_iter_2000.solverstate").exists()


def test_tasks_that_srun_starts_without_mpi_are_noticed_and_told_once(slurm, tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    srun = ["srun", "--mpi=none", "-n", "3", "scaffe", "train", "--solver", "solver.prototxt"]
    run = subprocess.run(srun, env=slurm, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert run.returncode == 2
    assert run.stderr.count("the launcher started 3 processes but each is alone in its MPI world") == 1
