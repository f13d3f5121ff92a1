"""A command whose output nobody reads any more, as before `| head`, ends quietly."""

import subprocess
import sys

from conftest import environment


def test_output_that_nobody_reads_ends_a_command_quietly():
    command = [sys.executable, "-m", "scaffe", "models", "googlenet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
