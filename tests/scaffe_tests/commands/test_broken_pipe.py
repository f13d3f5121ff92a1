"""A command whose output nobody reads any more, as before `| head`, ends quietly; one that finds no room says so."""

import os
import subprocess
import sys

import pytest
from conftest import environment
from log_specimens import head


def test_output_that_nobody_reads_ends_a_command_quietly():
    command = [sys.executable, "-m", "scaffe", "models", "googlenet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.fixture
def log(tmp_path):
    """The log of a run that has failed, so that `watch` ends."""
    (tmp_path / "log").write_text(head() + "scaffe: a defect\n")
    return tmp_path / "log"


@pytest.mark.parametrize("command", ["models", "watch LOG", "watch LOG --once"])
def test_output_that_is_closed_from_the_start_is_no_error(command, log):
    words = command.replace("LOG", str(log))
    command = ["bash", "-c", f'exec "$0" -m scaffe {words} >&-', sys.executable]
    done = subprocess.run(command, capture_output=True, env=environment())
    assert (done.returncode, done.stderr) == (int("watch" in words), b"")


# `watch` ends though its log goes on.
@pytest.mark.parametrize("command", ["models", "watch LOG", "watch LOG --once"])
def test_output_without_room_is_one_line(command, log):
    log.write_text(head())
    with open(os.open("/dev/full", os.O_WRONLY), "w") as full:
        command = [sys.executable, "-m", "scaffe", *command.replace("LOG", str(log)).split()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environment(), text=True)
    assert (done.returncode, done.stderr) == (2, "scaffe: the output can't be written: no space left on device\n")
