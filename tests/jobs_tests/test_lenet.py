from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

JOBS = Path(__file__).resolve().parents[2] / "jobs"
SCAFFE = [sys.executable, "-m", "scaffe"]


@pytest.mark.mpi_skip
def test_the_quickstart_s_net_learns_the_digits_on_two_ranks(mpirun, tmp_path: Path) -> None:
    (tmp_path / "jobs").symlink_to(JOBS)
    data = tmp_path / "build/quickstart"
    data.mkdir(parents=True)

    def scaffe(ranks: int, *arguments: object) -> str:
        run = mpirun(ranks, *SCAFFE, *arguments, cwd=tmp_path, timeout=110)
        assert run.returncode == 0, run.stderr
        return run.stderr

    scaffe(1, "convert-digits", data)
    scaffe(2, "train", "--solver", "jobs/lenet/solver.prototxt")
    weights = data / "lenet_iter_400.caffemodel"
    log = scaffe(1, "test", "--model", "jobs/lenet/train_test.prototxt", "--weights", weights, "--iterations", 6)
    assert float(re.findall(r"\] accuracy = (\S+)", log)[-1]) >= 0.975
