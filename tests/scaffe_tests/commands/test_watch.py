"""scaffe watch: what it shows of a log, on a terminal, elsewhere, and while a real run writes it."""

import fcntl
import io
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from bad_input import Refused, trainable
from log_specimens import evaluated, head, line, shown, whole
from patience import patient

from scaffe.cli import main
from scaffe.monitor.read_log import LogReader
from scaffe.tools import log_follower, log_status
from scaffe.tools.log_status import duration, spark, status
from scaffe.tools.watch_log import cells, cut, watch


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stopped = SimpleNamespace(monotonic=lambda: 0.0, time=lambda: 0.0)  # the time left says how old a line is
    monkeypatch.setattr(log_follower, "time", stopped)
    return tmp_path


def state(text, idle=0.0):
    """Return the texts of the state after a log, by their names."""
    reader = LogReader(2026)
    reader.feed(text.encode())
    return {one.name: one.text for one in status(reader, idle)}


class Writer:
    """Stands in for waiting: each wait does the next of some steps, each of which changes the log."""

    def __init__(self, *steps):
        self.steps = list(steps)

    def __call__(self, seconds):
        assert self.steps, "the log ended, and watch waits"
        step = self.steps.pop(0)
        if callable(step):
            step()
        else:
            with open("log", "a") as file:
                file.write(step)


def watched(*steps):
    """Return what watch writes where there is no terminal, as lines, and its exit code."""
    out = io.StringIO()
    code = watch("log", out, 0.1, Writer(*steps))
    return out.getvalue().splitlines(), code


# The state.


def test_the_state_of_a_run():
    text = head(max_iter=200) + evaluated(0, 0.1, 3, 0) + shown(0, 2, 1) + shown(10, 1.5, 3, lr=0.05)
    text += line("Snapshotting solver state to HDF5 file x.h5") + line("Overlap: 40%") + evaluated(10, 0.5, 2, 3)
    assert state(text) == {
        "iteration": "10 of 200, 5%, 38 s left",
        "loss": "1.5",
        "lr": "0.05",
        "speed": "50 images/s, 5 iterations/s",
        "test 0": "accuracy = 0.5, loss = 2 in iteration 10",
        "snapshot": "x.h5",
        "overlap": "40%",
    }
    assert state(text, 8)["iteration"] == "10 of 200, 5%, 30 s left"


def test_the_share_is_100_percent_at_the_end_alone():
    assert state(head(max_iter=1000) + shown(999, 2, 1))["iteration"] == "999 of 1000, 99%"
    assert state(head(max_iter=1000) + shown(1000, 2, 1))["iteration"] == "1000 of 1000, 100%"


def test_a_test_without_its_outputs_yet_is_not_shown_as_the_one_before():
    text = head() + evaluated(0, 0.1, 3, 0) + shown(0, 2, 1) + line("Iteration 10, Testing net (#0)")
    assert state(text)["test 0"] == "accuracy = 0.1, loss = 3 in iteration 0"


def test_the_time_left_follows_from_the_rows_since_the_resumption():
    text = head() + shown(0, 2, 0) + shown(10, 1, 1) + head(seconds=99) + shown(10, 1, 100) + shown(20, 1, 110)
    assert state(text)["iteration"] == "20 of 100, 20%, 80 s left"


def test_stalls_warnings_and_silence():
    lines = "Stall: rank 1 waits", "Stall: rank 2 \x1b[2Jwaits", "a bad record"
    text = head() + shown(0, 2, 0) + shown(1, 2, 20) + "".join(line(one, level="W") for one in lines)
    found = state(text, 99)
    assert found["stalls"] == r"2; the last: rank 2 waits" and found["warnings"] == "1; the last: a bad record"
    assert "quiet" not in found
    assert state(text, 150)["quiet"] == "no new line for 2 min"  # more than 5 times the 20 s between rows


def test_a_run_that_may_have_ended_has_no_time_left():
    text = head(max_iter=200) + shown(0, 2, 1) + shown(10, 1.5, 3)
    assert state(text, 9999)["iteration"] == "10 of 200, 5%"
    assert state(text + "Traceback (most recent call last):\nValueError: x\n")["iteration"] == "10 of 200, 5%"


def test_a_log_without_an_iteration_yet():
    assert state(line("Use CPU.")) == {"iteration": "none yet"}


def test_sparks():
    bars = log_status.BARS
    assert spark([0, 1, 2, 3, 4, 5, 6, 7], 8) == bars
    assert spark([1, 3, 10, 12], 2) == bars[0] + bars[-1]
    assert spark([0, float("nan"), 7], 3) == f"{bars[0]} {bars[-1]}"
    assert spark([100, 10, 1], 3)[1] in bars[3:5]  # powers of ten are as far apart
    assert spark([1], 0) == spark([], 9) == spark([float("nan")], 9) == "" and spark([2, 2], 9) == bars[0] * 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (119, "119 s"), (600, "10 min"), (3 * 3600 + 20 * 60, "3 h 20 min"), (52 * 3600, "2 d 4 h")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "width", "expected"), [("abc", 2, "ab"), ("层层", 3, "层"), ("e\u0301a", 1, "e\u0301")]
)
def test_texts_are_cut_by_columns(text, width, expected):
    assert cut(text, width) == expected and cells(expected) <= width


# A line a change.


def test_changes_are_lines_until_the_run_ends():
    lines, code = watched(
        head() + shown(0, 2, 0) + shown(10, 1.5, 10),
        "",
        evaluated(10, 0.5, 2, 10),
        shown(20, 1, 20) + line("Iteration 30, loss = "),
        line("Optimization Done."),
    )
    assert code == 0
    assert lines == [
        "file: not there yet",
        "iteration 10 of 100, 10%, 90 s left; loss 1.5; lr 0.1; speed 10 images/s, 1 iterations/s",
        "test 0: accuracy = 0.5, loss = 2 in iteration 10",
        "iteration 20 of 100, 20%, 80 s left; loss 1; lr 0.1; speed 10 images/s, 1 iterations/s",
        "run: done",
    ]


def test_a_failed_run_ends_with_its_error_and_1():
    lines, code = watched(head() + shown(0, 2, 0), "scaffe: rank 1: loss is nan\nMPI_ABORT was invoked\n")
    assert code == 1 and lines[-1] == "failed: rank 1: loss is nan"


def test_a_log_that_is_truncated_or_replaced_is_read_on():
    def truncate():
        Path("log").write_text("")

    def replace():
        Path("new").write_text(shown(30, 0.5, 30))
        os.replace("new", "log")

    lines, code = watched(
        whole().replace("Optimization Done.", ""), truncate, head() + shown(0, 4, 0) + shown(10, 3, 10), replace,
        line("Optimization Done."),
    )  # fmt: skip
    assert code == 0
    training = [one for one in lines if one.startswith("iteration")]
    assert [re.findall(r"(?:iteration|loss) ([^; ]+)", one) for one in training] == [
        ["100", "1"], ["10", "3"], ["30", "0.5"]
    ]  # fmt: skip


# Once.


def test_once_prints_the_state(capsys):
    Path("log").write_text(whole())
    assert main(["watch", "log", "--once"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "run        done"
    Path("log").write_text(head() + shown(0, 1, 0) + "scaffe: no\n")
    assert main(["watch", "log", "--once"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "failed     no"


# A run whose processes are killed leaves no line.


@pytest.fixture
def root():
    """A process that waits for input, as rank 0 of a run."""
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def end(process):
    process.kill()
    process.wait()


def log_of(process, host=""):
    """Return the log of a run that trains, whose rank 0 is a process of a host, by default of this one."""
    hosts = line(f"{host or socket.gethostname()}: rank 0 on cores 0-1, rank 1 on cores 0-1, 2 thread(s) each")
    start, rest = head().split("\n", 1)
    return (f"{start}\n{hosts}{rest}" + shown(0, 2, 0)).replace(" 4711 ", f" {process.pid} ")


def test_a_run_has_failed_once_its_first_process_has_ended_and_nobody_writes_its_log(root, capsys):
    Path("log").write_text(log_of(root))
    assert main(["watch", "log", "--once"]) == 0
    end(root)
    with open("log", "a"):  # as mpirun does, while other ranks go on
        assert main(["watch", "log", "--once"]) == 0
    assert "failed" not in capsys.readouterr().out
    assert main(["watch", "log", "--once"]) == 1
    said = f"failed     process {root.pid} on {socket.gethostname()} has ended without a last line"
    assert capsys.readouterr().out.splitlines()[-1] == said


def test_watching_ends_with_a_run_that_is_killed(root):
    lines, code = watched(log_of(root), "", lambda: end(root))
    assert code == 1 and lines[-1].startswith(f"failed: process {root.pid} on ")


@pytest.mark.parametrize(
    ("host", "more", "last"),
    [
        ("elsewhere", "", None),
        ("", line("Lost rank 0 (process 7 on x), in or after iteration 3", level="W"), None),  # others go on
        ("", line("Use CPU."), None),  # the next job in the same file
        ("", line("Optimization Done."), "run        done"),
        ("", "scaffe: loss is nan\n", "failed     loss is nan"),
    ],
)
def test_what_a_log_says_of_an_end_or_of_another_process_counts(root, capsys, host, more, last):
    Path("log").write_text(log_of(root, host) + more)
    end(root)
    main(["watch", "log", "--once"])
    said = capsys.readouterr().out
    assert "without a last line" not in said
    assert last is None or said.splitlines()[-1] == last


def test_what_a_process_writes_at_its_end_is_read(root, monkeypatch):
    """It may write its last line, and end, after the watch has read and before it looks for the process."""
    Path("log").write_text(log_of(root))

    def ends(pid):
        Path("log").write_text(log_of(root) + line("Optimization Done."))
        return -1

    monkeypatch.setattr(log_follower, "start_of", ends)
    assert main(["watch", "log", "--once"]) == 0


def test_a_real_run_that_is_killed_has_failed_at_once(tmp_path, monkeypatch, capsys):
    trainable(tmp_path, monkeypatch)
    solver = Path("solver.prototxt").read_text()
    endless = solver.replace("max_iter: 4", "max_iter: 100000000").replace("snapshot: 2", "display: 100")
    Path("solver.prototxt").write_text(endless)
    with open("run.log", "w") as log:
        train = [sys.executable, "-m", "scaffe", "train", "--solver", "solver.prototxt"]
        run = subprocess.Popen(train, stderr=log)
    try:
        assert patient(lambda _: "Iteration 100 " in Path("run.log").read_text(), 60)
        assert main(["watch", "run.log", "--once"]) == 0
    finally:
        end(run)
    assert main(["watch", "run.log", "--once"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"failed     process {run.pid} on {socket.gethostname()} has ended without a last line"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("none --once", "none: no such file or directory"),
        (". --once", ".: is a directory"),
        ("text --once", "text: no log of training: it has no line such as"),
        ("text --interval 0", "expected seconds, above 0 and at most 3600, got '0'"),
    ],
)
def test_refusals(tmp_path, capsys, words, said):
    Path("text").write_text("no log\n")
    assert said in Refused(tmp_path, capsys)("watch", *words.split())


# A terminal.


class Terminal:
    """A terminal of its own that runs scaffe watch, as pyte draws it."""

    def __init__(self, log, rows=20, columns=72, **env):
        pyte = pytest.importorskip("pyte")
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.master, slave = pty.openpty()
        self.resize(rows, columns)
        command = [sys.executable, "-m", "scaffe", "watch", str(log), "--interval", "0.05"]
        env = {**os.environ, "TERM": "xterm", "PYTHONUTF8": "1", **env}
        env = {name: value for name, value in env.items() if value}
        heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env, preexec_fn=heard)
        os.close(slave)
        self.written = b""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    def read(self, seconds):
        """Draw what arrives within some seconds; return False at the end."""
        ready = select.poll()
        ready.register(self.master, select.POLLIN)
        if not ready.poll(1e3 * seconds):
            return True
        try:
            content = os.read(self.master, 65536)
        except OSError:  # the other end is closed
            return False
        self.written += content
        self.stream.feed(content)
        return bool(content)

    def until(self, shows):
        """Draw until a line starts so; return the lines."""

        def look(seconds):
            assert self.read(seconds), self.lines
            return any(one.startswith(shows) for one in self.lines)

        assert patient(look, 60), self.lines
        return self.lines

    def end(self):
        """Draw what is left; return the exit code."""
        assert patient(lambda seconds: not self.read(seconds), 60), self.lines
        return self.process.wait()

    @property
    def lines(self):
        return [one.rstrip() for one in self.screen.display]


def test_a_terminal_shows_a_run_that_somebody_else_started(tmp_path, monkeypatch):
    trainable(tmp_path, monkeypatch)
    solver = Path("solver.prototxt").read_text()
    Path("solver.prototxt").write_text(solver + "display: 1\ntest_iter: 1\ntest_interval: 2\n")
    with Terminal("run.log") as terminal:
        terminal.until("file       not there yet")
        with open("run.log", "w") as log:
            train = [sys.executable, "-m", "scaffe", "train", "--solver", "solver.prototxt"]
            assert subprocess.run(train, stderr=log).returncode == 0
        assert terminal.end() == 0
        last = [one for one in Path("run.log").read_text().splitlines() if ", loss = " in one][-1]
        lines = [one.split(maxsplit=1) for one in terminal.lines if one]
        assert ["iteration", "4 of 4, 100%"] in lines and ["loss", last.rpartition(" = ")[2]] in lines
        assert ["snapshot", "snap_iter_4.solverstate"] in lines and ["run", "done"] in lines


def test_a_window_is_drawn_in_place_and_as_wide_as_it_is():
    Path("log").write_text(head() + "".join(shown(k, 4 - k, 1000 * k) for k in range(4)))  # so that none is late
    with Terminal("log") as terminal:
        before = terminal.until("speed")
        assert before[1].startswith("iteration  3 of 100, 3%, ") and before[2].split()[-1] == "█▆▃▁"
        with open("log", "a") as file:
            file.write(shown(4, 2.5, 4000, name="a"))
        assert terminal.until("loss       2.5")[1].startswith("iteration  4 of 100")
        terminal.resize(3, 20)
        terminal.screen.reset()
        with open("log", "a") as file:
            file.write(line("Stall: rank 1 waits", 5000, level="W"))
        lines = terminal.until("stalls")  # which matters more than the loss
        assert len(lines) == 3 and all(len(one) <= 20 for one in lines)
        terminal.process.terminate()
        assert terminal.end() == 128 + 15
        assert b"\x1b[?25h" in terminal.written  # the cursor is back


def test_ctrl_c_ends_quietly():
    Path("log").write_text(head() + shown(0, 2, 0))
    with Terminal("log") as terminal:
        terminal.until("loss")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 130
        assert b"Traceback" not in terminal.written


@pytest.mark.parametrize(("env", "coloured"), [({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)])
def test_colours(env, coloured):
    Path("log").write_text(head() + shown(0, 2, 0) + line("Stall: rank 1", level="W"))
    with Terminal("log", **env) as terminal:
        terminal.until("stalls     1; the last: rank 1")
        terminal.process.terminate()
        terminal.end()
        assert (b"\x1b[31mstalls" in terminal.written) == coloured


def test_a_terminal_that_moves_no_cursor_gets_lines():
    Path("log").write_text(whole())
    with Terminal("log", TERM="dumb") as terminal:
        assert terminal.end() == 0
        assert b"\x1b" not in terminal.written and b"run: done" in terminal.written
