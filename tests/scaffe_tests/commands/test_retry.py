"""scaffe retry: its command line. training/test_retries.py has the tests of the rest."""

from __future__ import annotations

import sys

import nets
import pytest

from scaffe.cli import main


def test_a_training_that_ends_well_is_started_once(tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    nets.write_solver(tmp_path, nets.softmax_regression("db"), snapshot_prefix="snap")
    job = [sys.executable, "-c", "print('once')", "train", "--solver", "solver.prototxt", "-snapshot=auto"]
    assert main(["retry", "--retries", "2", "--", *job]) == 0
    assert capfd.readouterr() == ("once\n", "")


def test_a_training_of_which_nothing_is_left_is_told_without_a_retry_too(tmp_path, monkeypatch, capfd) -> None:
    """Killed with all its ranks, it leaves its lock; the launcher's exit status is 0."""
    monkeypatch.chdir(tmp_path)
    nets.write_solver(tmp_path, nets.softmax_regression("db"), snapshot_prefix="snap")
    job = [sys.executable, "-c", "open('snap.lock', 'w')", "train", "--solver", "solver.prototxt"]
    assert main(["retry", "--retries", "0", "--", *job]) == 76
    assert capfd.readouterr().err == "scaffe retry: a process was lost (exit status 0)\n"


def test_a_launcher_that_is_not_there_is_one_line(tmp_path, capsys) -> None:
    solver = nets.write_solver(tmp_path, nets.softmax_regression("db"))
    assert main(["retry", "--", "no-such-launcher", "scaffe", "train", f"--solver={solver}", "-snapshot=auto"]) == 2
    assert capsys.readouterr().err == "scaffe: 'no-such-launcher' can't be started: there is no such program\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--retries", "-1", "--", "mpirun", "train"], "--retries must be 0 or more, got -1"),
        (["--", "mpirun", "-n", "2", "python", "mine.py"], "retries need a training that goes on at its newest"),
        (["--", "mpirun", "scaffe", "train", "--solver", "s.prototxt"], "scaffe train --snapshot auto"),
        (["--", "mpirun", "scaffe", "train", "--solver=no", "-snapshot=auto"], "no: no such file or directory"),
    ],
)
def test_wrong_words_are_one_line(capsys, words: list[str], text: str) -> None:
    assert main(["retry", *words]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("scaffe: ") and text in line
