"""Commands of collectives end quietly where nobody reads their output any more."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from collectives.command import NO_READER

PRINTING = ["schedules", "model reduce --ranks 4 --bytes 64K"]
COMMANDS = [*PRINTING, "bench --help", "tune --help"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_whose_reader_has_gone_says_nothing(command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", *f"collectives.{command}".split()], stdout=writer, stderr=subprocess.PIPE, text=True
    )
    os.close(writer)
    assert ended.stderr == ""
    if command in PRINTING:  # argparse ignores a pipe that breaks while it prints its help
        assert ended.returncode == NO_READER


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_read_ends_well(command: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", *f"collectives.{command}".split()], capture_output=True, text=True, check=True
    )
    assert len(ended.stdout.splitlines()) > 5 and ended.stderr == ""
