"""What is read of a process in /proc: whatever its name is, and until its parent has noticed its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scaffe.files.process_state import is_written, start_of, state_of


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for input, and whose name looks like what follows the name."""
    (tmp_path / "b) Z 1 (c").symlink_to("/bin/cat")
    process = subprocess.Popen([tmp_path / "b) Z 1 (c"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_a_process_runs_is_stopped_and_ends(process) -> None:
    pid = process.pid
    assert "b) Z 1 (c" in Path(f"/proc/{pid}/stat").read_text()
    started, found = start_of(pid), state_of(pid)
    assert found is not None and not found.is_stopped and not found.has_ended
    assert found.started == started
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)
    stopped = state_of(pid)
    assert stopped is not None and stopped.is_stopped and start_of(pid) == started
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
    ended = state_of(pid)
    assert ended is not None and ended.has_ended and start_of(pid) == -1
    process.wait()
    assert state_of(pid) is None and start_of(pid) == -1
    assert start_of(1 << 80) is None  # as a damaged lock file may have it


def test_a_process_has_used_the_time_that_the_system_says_and_started_before_its_children(process) -> None:
    found, child = state_of(os.getpid()), state_of(process.pid)
    assert found is not None and child is not None and found.started <= child.started
    program = "import os, time\nwhile time.process_time() < 0.2: pass\nprint(sum(os.times()[:2]), flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as busy:
        assert busy.stdin and busy.stdout
        said, used = float(busy.stdout.readline()), state_of(busy.pid)
        busy.stdin.write(b"\n")
    ticks = os.sysconf("SC_CLK_TCK")
    assert used is not None and used.cpu / ticks >= said - 2 / ticks >= 0.1


@pytest.mark.parametrize("text", ["", "7 (cat) S 1 7"])
def test_a_process_that_ends_while_it_is_read_is_none(monkeypatch, text: str) -> None:
    monkeypatch.setattr(Path, "read_text", lambda path: text)
    assert state_of(os.getpid()) is None


def test_a_file_is_written_as_long_as_a_process_has_it_open_for_writing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    with path.open() as file:
        assert not is_written(file.fileno())
        with path.open("a"):
            assert is_written(file.fileno())
        assert not is_written(file.fileno())
        with (tmp_path / "other").open("w"):
            assert not is_written(file.fileno())
        with path.open("a") as log, subprocess.Popen(["cat"], stdin=subprocess.PIPE, stderr=log) as other:
            log.close()
            assert is_written(file.fileno())
            other.kill()
            other.wait()
            assert not is_written(file.fileno())
