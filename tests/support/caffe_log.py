"""The rules by which Caffe's parse_log.py and extract_seconds.py read a log, written anew for the tests."""

import re
from datetime import datetime

ITERATION = re.compile(r"Iteration (\d+)")
OUTPUT = {kind: re.compile(rf"{kind} net output #(\d+): (\S+) = ([\.\deE+-]+)") for kind in ("Train", "Test")}
RATE = re.compile(r"lr = ([-+]?[0-9]*\.?[0-9]+([eE]?[-+]?[0-9]+)?)")
NUMBER = re.compile(r"-?\d[\d.]*(?:e[+-]?\d+)?")


def time_of(line, year=2026):
    """Return a line's time, from its first two words; the year is not in them. Raise ValueError if it has none."""
    day, time = line.split()[:2]
    clock, microsecond = time.split(".")
    hour, minute, second = clock.split(":")
    return datetime(year, int(day[1:3]), int(day[3:]), int(hour), int(minute), int(second), int(microsecond))


def parse(lines):
    """Return the rows of the train and of the test table.

    A row has the iteration, the seconds since the start, the rate and the outputs by name. All of them are the
    last that a line before it named; nothing counts before the first line with an iteration.
    """
    start = next(time_of(line) for line in lines if "Solving" in line)
    iteration, rate = None, float("nan")
    rows = {"Train": [], "Test": []}
    for line in lines:
        if found := ITERATION.search(line):
            iteration = int(found[1])
        if iteration is None:
            continue
        seconds = (time_of(line) - start).total_seconds()
        if found := RATE.search(line):
            rate = float(found[1])
        for kind, pattern in OUTPUT.items():
            if found := pattern.search(line):
                _row(rows[kind], iteration, seconds, rate)[found[2]] = float(found[3])
    return rows["Train"], rows["Test"]


def _row(rows, iteration, seconds, rate):
    """Return the row of this iteration: the last one, or a new one."""
    if not rows or rows[-1]["NumIters"] != iteration:
        rows.append({"NumIters": iteration, "Seconds": seconds, "LearningRate": rate})
    return rows[-1]


def without_year(line):
    """Return a line of a newer glog, which puts the year in front of month and day, with the classic prefix."""
    return re.sub(r"^([IWEF])\d{4}(?=\d{4} )", r"\1", line)


def forms(lines):
    """Return what stands behind the prefix of each line, with 0 for each number and F for a file."""
    return [NUMBER.sub("0", re.sub(r"file \S+", "file F", _text(line))) for line in lines]


def numbers(lines):
    """Return all numbers that stand behind the prefixes."""
    return [float(number) for line in lines for number in NUMBER.findall(_text(line))]


def _text(line):
    return line.split("] ", 1)[1]
