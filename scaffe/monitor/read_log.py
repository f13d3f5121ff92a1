"""LogReader: the training that a log reports, read as the file grows; our lines have the form of Caffe's."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import zlib
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from readers.files import open_input
from scaffe.errors import LogError
from scaffe.monitor.log_lines import LogClock, LogLine, OutputValue, displayed, lines_of, output, split, testing
from scaffe.monitor.log_table import LOSS, LogTable

CHUNK = 1 << 20  # bytes
LONGEST = 1 << 20  # characters of a line that is read
_BATCH = re.compile(r"Global batch ([0-9]{1,15}):")
_FIELD = re.compile(r"\s*(max_iter|iter_size|batch_size): ([0-9]{1,15})\s*$")
_LAST = re.compile(r"Training to iteration ([0-9]{1,15})$")
_GPUS = re.compile(r"Using GPUs ([0-9, ]+)$")
_ROOT = re.compile(r"(\S+): rank 0 on cores ")
_ROOT_LOST = "Lost rank 0 "
_SNAPSHOT = re.compile(r"Snapshotting (?:to|solver state to) .*?file (.+)$")
_STARTS = "Use CPU", "Use GPU", "Using GPUs"
_DEBUG = "    [Backward] All net params "  # of debug_info, which Caffe logs as an error
_ENDS = {"Optimization Done.": "done", "Optimization stopped early.": "stopped early"}
_FAILURES = (
    "scaffe: ", "Traceback (most recent call last)", "*** Aborted at", "*** Process received signal", "MPI_ABORT was",
    "prterun noticed", "mpirun noticed", "slurmstepd: error", "srun: error", "terminate called", "Segmentation fault",
    "Killed",
)  # fmt: skip
EXAMPLE = "I1120 12:00:00.000000 99 solver.cpp:239] Iteration 10, loss = 1.5"


class LoggedRun:
    """A run: the rows of its train net and of its test nets, and facts about it.

    Seconds count from the line "Solving ..."; breaks before a resumption are left out. `batch`, the images of an
    iteration, and `max_iter` are 0 where the log does not have them. `begin` is the first iteration of the last job.
    """

    def __init__(self) -> None:
        self.net, self.batch, self.max_iter, self.begin = "", 0, 0, 0
        self.train, self.tests = LogTable(), dict[int, LogTable]()

    @property
    def tables(self) -> list[LogTable]:
        """The tables with rows."""
        return [table for table in (self.train, *self.tests.values()) if len(table)]

    @property
    def iteration(self) -> int:
        """The last iteration that has a row, -1 for none."""
        return max((table.iterations[-1] for table in self.tables), default=-1)

    @property
    def seconds(self) -> float:
        """The seconds up to the last row."""
        return max((table.times[-1] for table in self.tables), default=0.0)


class LoggedProcess(NamedTuple):
    """A process of a host."""

    host: str
    pid: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Started(NamedTuple):
    """A line "Solving ...", whose first iteration is to come: the net, and the time."""

    net: str
    time: float


class LogReader:
    """Reads a log. `runs` has a run for each start at iteration 0; a resumption continues the last one.

    The last job's `outcome` is "", "done", "stopped early" or "failed"; `error` is the line that says why. `warnings`
    and `notes` (by "Overlap" and "Reading") are also those of the last job, and so is `root`, the process that began as
    its rank 0, unless the log does not say that, or says that it is lost. Lines that are not understood are passed
    over, and so is a last line that has no end yet. The classic prefix has no year: it is `year` at the first line.
    """

    def __init__(self, year: int) -> None:
        self.runs: list[LoggedRun] = []
        self.lines = 0  # that have glog's prefix
        self.outcome, self.error, self.snapshot = "", "", ""
        self.warnings: list[str] = []
        self.notes: dict[str, str] = {}
        self.root: LoggedProcess | None = None
        self._clock = LogClock(year)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._tail, self._in_traceback = "", False
        self._facts: dict[str, int] = {}  # of the job: what its batch and its last iteration follow from
        self._started: Started | None = None
        self._before = -1  # the iteration of the row before
        self._zero = 0.0  # the time of second 0
        self._test = LogTable()

    def feed(self, content: bytes) -> None:
        """Read on."""
        *lines, tail = lines_of(self._tail + self._decoder.decode(content))
        self._tail = tail if len(tail) < LONGEST else ""
        for line in lines:
            self._read(split(line))

    def begin_file(self) -> None:
        """Drop the part of a line that was read: the next bytes begin a file."""
        self._tail = ""
        self._decoder.reset()

    def _read(self, line: LogLine) -> None:
        if not line.level:
            self._bare(line.text)
            return
        self.lines += 1
        self._in_traceback = False
        if line.text.startswith("Iteration "):
            self._iteration(line)
        elif value := output(line.text):
            self._output(value, line)
        elif line.level == "F":
            self.fail(line.text)
        elif line.level in "WE" and not line.text.startswith(_DEBUG):
            self.warnings.append(line.text)
            if line.text.startswith(_ROOT_LOST):
                self.root = None
        else:
            self._about(line)

    # Rows.

    def _iteration(self, line: LogLine) -> None:
        if test := testing(line.text):
            seconds = self._seconds(test.iteration, line)
            self._test = self.runs[-1].tests.setdefault(test.net, LogTable())
            self._test.begin(test.iteration, seconds)
        elif one := displayed(line.text):
            seconds, train = self._seconds(one.iteration, line), self.runs[-1].train
            if one.what == LOSS or not len(train) or train.iterations[-1] != one.iteration:
                train.begin(one.iteration, seconds)
            train.put(one.what, one.value)

    def _seconds(self, iteration: int, line: LogLine) -> float:
        """Return the seconds of a line about an iteration, which may be the first of a run or of a resumption."""
        now = self._clock.seconds(line.when)
        started, self._started = self._started, None
        before, self._before = self._before, iteration
        if before < 0 or (iteration == 0 and (started or before > 0)):
            self.runs.append(LoggedRun())
            self.snapshot = ""
        if before < 0 or started or iteration < before:
            self._begin_job(iteration, started or Started(self.runs[-1].net, now))
        self.outcome = self.error = ""
        return now - self._zero

    def _begin_job(self, iteration: int, started: Started) -> None:
        run, facts = self.runs[-1], self._facts
        batch = facts.get("batch_size", 0) * facts.get("iter_size", 1) * facts.get("gpus", 1)
        run.net, run.begin = started.net, iteration
        run.batch, run.max_iter = facts.get("batch", batch), facts.get("max_iter", 0)
        self._zero = started.time - run.seconds

    def _output(self, value: OutputValue, line: LogLine) -> None:
        table = self._test if value.is_test else self.runs[-1].train if self.runs else LogTable()
        if len(table):
            if value.is_test:  # as parse_log.py has it, a test's time is that of its outputs
                table.times[-1] = self._clock.seconds(line.when) - self._zero
            name = table.put_output(value.name, value.value)
            if value.loss is not None:
                table.weighted.add(name)
                if value.is_test:
                    table.add_loss(value.loss)

    # All other lines.

    def _about(self, line: LogLine) -> None:
        """Read a line that says something about the job."""
        text = line.text
        if text.startswith((*_STARTS, "Initializing solver", "Solving ")):
            self._start(line)
        elif text in _ENDS:
            self.outcome = _ENDS[text]
        elif found := _SNAPSHOT.match(text):
            self.snapshot = found[1]
        elif (found := _ROOT.match(text)) and line.process.isdecimal():
            self.root = LoggedProcess(found[1], int(line.process))
        elif found := _BATCH.match(text):
            self._facts["batch"] = int(found[1])
        elif found := _LAST.match(text):
            self._facts["max_iter"] = int(found[1])
        elif text.startswith(("Overlap: ", "Reading: ")):
            name, _, note = text.partition(": ")
            self.notes[name] = note

    def _start(self, line: LogLine) -> None:
        """Begin to read about a job, or go on at one of the lines with which it begins."""
        self.outcome = self.error = ""
        self._test = LogTable()
        if line.text.startswith(_STARTS):
            self.warnings, self.notes, self.root = [], {}, None
            gpus = _GPUS.match(line.text)
            self._facts = {"gpus": len(gpus[1].split(","))} if gpus else {}
        elif line.text.startswith("Initializing"):
            self._facts = {name: self._facts[name] for name in self._facts if name == "gpus"}
        else:
            self._started = Started(line.text[len("Solving ") :].strip(), self._clock.seconds(line.when))

    def _bare(self, text: str) -> None:
        """Read a line without a prefix: a field of a solver or of a net, or an error."""
        if found := _FIELD.match(text):
            self._facts.setdefault(found[1], int(found[2]))
        elif self._in_traceback:
            if text[:1].strip() and not text.startswith("Traceback"):  # which another rank may begin meanwhile
                self.error, self._in_traceback = text.strip(), False
        elif any(one in text for one in _FAILURES):
            self._in_traceback = not self.error and "Traceback" in text
            self.fail(text.strip())

    def fail(self, text: str) -> None:
        """Note that the job has failed, and why, unless that is known."""
        if not self.error:  # the first line says most
            self.outcome, self.error = "failed", text.removeprefix("scaffe: ")


def read_log(path: str | os.PathLike[str]) -> list[LoggedRun]:
    """Return the runs of a log, plain or gzip. Raise LogError if it can't be read or reports no training."""
    reader = LogReader(year_of(path))
    try:
        with open_input(path) as plain:
            zipped = plain.peek(2)[:2] == b"\x1f\x8b"
            with gzip.GzipFile(fileobj=plain) if zipped else plain as file:
                for chunk in _chunks(file):
                    reader.feed(chunk)
    except OSError as error:
        raise LogError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    if not reader.runs:
        raise LogError(f"{path}: no log of training: it has no line such as '{EXAMPLE}'")
    return reader.runs


def _chunks(file: gzip.GzipFile | io.BufferedReader) -> Iterator[bytes]:
    """Iterate over a file's content. A gzip file may be cut or damaged."""
    try:
        while chunk := file.read1(CHUNK):
            yield chunk
    except (EOFError, zlib.error):
        return


def year_of(path: str | os.PathLike[str]) -> int:
    """Return the year of a file's last change, in which its lines are taken to be."""
    try:
        return datetime.fromtimestamp(os.stat(path).st_mtime).year
    except (OSError, ValueError, OverflowError):
        return datetime.now().year
