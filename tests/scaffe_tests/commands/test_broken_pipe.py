"""A command whose output nobody reads any more, as before `| head`, ends quietly; one that finds no room says so."""

import os
import subprocess
import sys

from conftest import environment


def test_output_that_nobody_reads_ends_a_command_quietly():
    command = [sys.executable, "-m", "scaffe", "models", "googlenet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_output_that_is_closed_from_the_start_is_no_error():
    command = ["bash", "-c", 'exec "$0" -m scaffe models >&-', sys.executable]
    done = subprocess.run(command, capture_output=True, env=environment())
    assert (done.returncode, done.stderr) == (0, b"")


def test_output_without_room_is_one_line():
    with open(os.open("/dev/full", os.O_WRONLY), "w") as full:
        command = [sys.executable, "-m", "scaffe", "papers", "--checks"]  # more than one buffer
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environment(), text=True)
    assert (done.returncode, done.stderr) == (2, "scaffe: the output can't be written: no space left on device\n")
