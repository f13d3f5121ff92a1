"""jobs/models.sh fails where a loss does not fall, and refuses nets that it does not know."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

JOBS = Path(__file__).resolve().parents[2] / "jobs"
PREFIX = "I20261123 12:00:{:02d}.000000 99 solver.cpp:239] "
pytestmark = pytest.mark.mpi_skip


def told(log: Path) -> tuple[int, str]:
    """Return the exit code and the line of jobs/loss_falls.py."""
    done = subprocess.run([sys.executable, JOBS / "loss_falls.py", "net", log], capture_output=True, text=True)
    assert done.stderr == ""
    return done.returncode, done.stdout


def written(path: Path, losses: list[float]) -> Path:
    """Write a log in Caffe's form, in which the loss weighs 20."""
    lines = [PREFIX.format(0) + "Solving net"]
    for k, loss in enumerate(losses):
        lines.append(PREFIX.format(k) + f"Iteration {10 * k}, loss = {20 * loss}")
        lines.append(PREFIX.format(k) + f"    Train net output #0: loss = {loss} (* 20 = {20 * loss} loss)")
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("losses", "code"),
    [
        ([2.0, 1.0, 0.5, 0.25, 0.25], 0),
        ([2.0, 1.0, 1.6, 1.6, 1.5], 0),
        ([2.0, 0.1, 1.7, 1.6, 1.7], 1),
        ([2.0, 4.0, 1.9, 1.9, 1.5], 1),
        ([2.0, 2.0, 2.0, 2.0], 1),
        ([2.0, 1.0, 0.5, float("nan")], 1),
        ([2.0, 0.5, 0.5], 1),
    ],
)
def test_the_mean_of_the_last_three_losses_is_a_fifth_below_the_first(losses, code, tmp_path) -> None:
    found, line = told(written(tmp_path / "log", losses))
    assert found == code, line
    assert line.startswith(f"net: loss 2, after {10 * (len(losses) - 1)} iterations ") and line.count("\n") == 1


def test_a_log_without_a_training_is_no_fall(tmp_path) -> None:
    (tmp_path / "empty").write_text("")
    for log in (tmp_path / "empty", tmp_path / "missing", written(tmp_path / "no_loss", [])):
        code, line = told(log)
        assert code == 1 and line.startswith("net: no ") and line.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "ranks", "message"),
    [
        ("gnm", "1", "models.sh: unknown net 'gnm'; known: word_lm gnmt ncf mobilenet inception_bn\n"),
        ("ncf", "0", "models.sh: MODELS_RANKS is '0'; it must be 1 or more\n"),
        ("ncf", "two", "models.sh: MODELS_RANKS is 'two'; it must be 1 or more\n"),
    ],
)
def test_what_models_sh_refuses(name, ranks, message) -> None:
    command = ["env", f"MODELS_RANKS={ranks}", "bash", JOBS / "models.sh", name]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)
