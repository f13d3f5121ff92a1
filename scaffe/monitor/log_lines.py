"""Lines of a log, ours or Caffe's: glog's prefix, and what a solver says about its training.

Programs around a run change its lines: launchers put a rank's name in front, or NULs; terminals leave carriage returns
and escape sequences of a progress bar. Numbers of a line are read only where all of them are well formed.
"""

from __future__ import annotations

import re
from datetime import date
from typing import NamedTuple

# glog's classic prefix, and the newer one, which has the year in front of month and day. A rank's name may precede it.
_PREFIX = re.compile(
    r"([IWEF])([0-9]{4})?([0-9]{2})([0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]{1,6}) +(\S+) \S+:[0-9]+\] ?"
)
_COUNT = r"([0-9]{1,15})\b"
_SHOWN = re.compile(rf"Iteration {_COUNT}.*?, (loss|lr) = ([^\s,]+)")
_TESTING = re.compile(rf"Iteration {_COUNT}, Testing net \(#{_COUNT}\)")
_OUTPUT = re.compile(r"\s*(Train|Test) net output #[0-9]+: (\S.*?) = (\S+)(?: \(\* \S+ = (\S+) loss\))?\s*$")
_LABEL = re.compile(r"\[[0-9]+,[0-9]+\]<std(?:err|out)>: ?|[0-9]+: ")  # of mpirun and srun
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\0")
_BREAK = re.compile(r"[\r\n]+")
HALF_A_YEAR = 180 * 86400.0


class LogLine(NamedTuple):
    """A line: its level, one of IWEF or "" without a prefix; the fields of its time; what follows the prefix.

    `process` is the id of the process that wrote it, or of the thread, as Caffe has it.
    """

    level: str
    when: tuple[str, ...]
    text: str
    process: str = ""


class Displayed(NamedTuple):
    """What a solver displays at an iteration; `what` is "loss" or "lr"."""

    iteration: int
    what: str
    value: float


class TestBegin(NamedTuple):
    """The begin of a test."""

    iteration: int
    net: int


class OutputValue(NamedTuple):
    """A value of an output of the train net or of a test net; `loss` is its part of the loss, None without weight."""

    is_test: bool
    name: str
    value: float
    loss: float | None


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, without NULs and escape sequences; a carriage return ends a line too."""
    if "\x1b" in text or "\0" in text:
        text = _ESCAPE.sub("", text)
    return _BREAK.split(text) if "\r" in text else text.split("\n")


def split(line: str) -> LogLine:
    """Return the parts of a line."""
    found = _PREFIX.search(line)
    if not found:
        label = _LABEL.match(line)
        return LogLine("", (), line[label.end() :] if label else line)
    level, *when, process = found.groups("")
    return LogLine(level, tuple(when), line[found.end() :], process)


def displayed(text: str) -> Displayed | None:
    """Return what a line displays about an iteration, or None."""
    found = _SHOWN.match(text)
    value = _number(found[3]) if found else None
    return None if found is None or value is None else Displayed(int(found[1]), found[2], value)


def testing(text: str) -> TestBegin | None:
    """Return the test that a line begins, or None."""
    found = _TESTING.match(text)
    return TestBegin(int(found[1]), int(found[2])) if found else None


def output(text: str) -> OutputValue | None:
    """Return the value of an output that a line has, or None."""
    found = _OUTPUT.match(text)
    value = _number(found[3]) if found else None
    return (
        None if found is None or value is None else OutputValue(found[1] == "Test", found[2], value, _number(found[4]))
    )


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


class LogClock:
    """The times of a log's lines, in seconds since a fixed day. The classic prefix has no year.

    The first line is taken to be of `year`. A month and day that lie half a year back begin the next year.
    """

    def __init__(self, year: int):
        self._year, self._last = year, 0.0
        self._days: dict[tuple[int, int, int], float] = {}

    def seconds(self, when: tuple[str, ...]) -> float:
        """Return the time of a line, given its `when`; that of the line before it if it is no time."""
        year, month, day, hour, minute, second, part = when
        try:
            now = self._day(int(year or self._year), int(month), int(day))
        except ValueError:
            return self._last
        now += 3600 * int(hour) + 60 * int(minute) + int(second) + float(part)
        if not year and now < self._last - HALF_A_YEAR:
            self._year += 1
            return self.seconds(when)
        self._last = now
        return now

    def _day(self, year: int, month: int, date_: int) -> float:
        day = year, month, date_
        if day not in self._days:
            self._days[day] = 86400.0 * (date(*day) - date(2000, 1, 1)).days
        return self._days[day]
