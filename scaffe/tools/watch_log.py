"""Watching a log: on a terminal its state is drawn in place, elsewhere each change is a line."""

from __future__ import annotations

import os
import signal
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TextIO

from scaffe.errors import LogError
from scaffe.monitor.log import one_line
from scaffe.monitor.read_log import EXAMPLE
from scaffe.tools.log_follower import LogFollower
from scaffe.tools.log_status import BAD, BARS, GOOD, PLAIN_BARS, WARNING, Status, duration, status

NAME = 11  # columns of a line's name
TOGETHER = ("iteration", "loss", "train", "lr", "speed")  # one line where each change is a line
COLOURS = {GOOD: "32", WARNING: "33", BAD: "31"}
ENTER = "\x1b[?1049h\x1b[?25l"  # another screen, without cursor
LEAVE = "\x1b[H\x1b[J\x1b[?25h\x1b[?1049l"  # cleared first, for terminals that have one screen


class View(Protocol):
    """What shows the state of a run."""

    def show(self, title: str, lines: Sequence[Status]) -> None:
        """Show the state."""


def watch(path: str, out: TextIO, interval: float, wait: Callable[[float], None] = time.sleep) -> int:
    """Show what a log says until its run has ended; return 0, or 1 if it failed. A file that is missing is waited for.

    `wait` waits for `interval` seconds. Raise LogError if the file can't be read.
    """
    with LogFollower(path) as follower, _view(out) as view:
        while True:
            follower.poll()
            if follower.is_there:
                title = f"{path}: last line {duration(follower.idle)} ago"
                view.show(title, status(follower.reader, follower.idle))
            else:
                view.show(path, [Status("file", "not there yet", WARNING)])
            if follower.reader.outcome:
                return int(follower.reader.outcome == "failed")
            wait(interval)


def show_once(path: str, out: TextIO) -> int:
    """Write a log's present state; return 1 if its run failed, else 0. Raise LogError if it can't be read."""
    with LogFollower(path) as follower:
        follower.poll()
        reader = follower.reader
        if not follower.is_there:
            raise LogError(f"{path}: no such file or directory")
        if not (reader.lines or reader.outcome):
            raise LogError(f"{path}: no log of training: it has no line such as '{EXAMPLE}'")
        write_state(out, status(reader, follower.idle))
        return int(reader.outcome == "failed")


def write_state(out: TextIO, lines: Sequence[Status]) -> None:
    """Write a state, a line each."""
    out.writelines(f"{line.name:{NAME}}{line.text}\n" for line in lines)
    out.flush()


@contextmanager
def _view(out: TextIO) -> Iterator[View]:
    """Open the view that suits `out`."""
    if not out.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield Changes(out)
        return
    screen = Screen(out)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    out.write(ENTER)
    try:
        yield screen
    finally:
        signal.signal(signal.SIGTERM, before)
        out.write(LEAVE)
        write_state(out, screen.lines)


class Changes:
    """Writes a line for each change: where nobody looks at a terminal."""

    def __init__(self, out: TextIO):
        self._out = out
        self._written: dict[str, str] = {}

    def show(self, title: str, lines: Sequence[Status]) -> None:
        """Write the lines whose texts are new."""
        texts = {line.name: line.text for line in lines if line.name not in TOGETHER}
        if together := "; ".join(f"{line.name} {line.text}" for line in lines if line.name in TOGETHER):
            texts = {"training": together, **texts}
        for name, text in texts.items():
            old = self._written.get(name)
            if text != old and not (name == "quiet" and old):  # its seconds always change
                self._out.write(f"{text if name == 'training' else f'{name}: {text}'}\n")
        self._written = texts
        self._out.flush()


class Screen:
    """Draws the state in place, as wide and as high as the terminal is at the time."""

    def __init__(self, out: TextIO):
        self._out = out
        self.lines: Sequence[Status] = ()
        self._is_coloured = not os.environ.get("NO_COLOR")
        self._bars = BARS if _can_write(out, BARS) else PLAIN_BARS

    def show(self, title: str, lines: Sequence[Status]) -> None:
        """Draw the state: what does not fit is cut, and left out, the lines that are coloured last."""
        self.lines = lines
        width, height = self._size()
        first = sorted(range(len(lines)), key=lambda k: (k > 0 and not lines[k].kind, k))[: max(0, height - 1)]
        fitting = (self._row(lines[k], width) for k in sorted(first))
        rows = [self._styled(cut(one_line(title), width), "1"), *fitting]
        text = "\r\n".join(f"{row}\x1b[K" for row in rows[:height])
        self._out.write(f"\x1b[H{text}\x1b[J")
        self._out.flush()

    def _size(self) -> tuple[int, int]:
        """Return columns and rows; those of COLUMNS and LINES are old once the window's size has changed."""
        try:
            size = os.get_terminal_size(self._out.fileno())
        except OSError:
            return 80, 24
        return size.columns or 80, size.lines or 24

    def _row(self, line: Status, width: int) -> str:
        text = cut(f"{line.name:{NAME}}{line.text}", width)
        room = width - cells(text) - 2
        graph = line.graph(room, self._bars) if line.graph and room > 0 else ""
        return self._styled(text, COLOURS.get(line.kind, "")) + (f"  {graph}" if graph else "")

    def _styled(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if code and self._is_coloured else text


def _can_write(out: TextIO, text: str) -> bool:
    try:
        text.encode(out.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def cells(text: str) -> int:
    """Return the columns that a text takes on a terminal."""
    return sum(_cells(letter) for letter in text)


def _cells(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def cut(text: str, width: int) -> str:
    """Return as much of a text as fits into `width` columns."""
    taken = 0
    for k, letter in enumerate(text):
        taken += _cells(letter)
        if taken > width:
            return text[:k]
    return text
