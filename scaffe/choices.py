"""Choices: which kernel does each piece of work, found by timing the kernels or given."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from scaffe.atomic import write_atomically
from scaffe.compute import AUTO, FIXED, TIMED
from scaffe.errors import PlanError
from scaffe.monitor.log import log

MARGIN = 0.93  # of the time of the fixed kernel: another one must stay below it to replace that one
RUNS = 3
HOPELESS = 1.3  # times as long as the best so far: not worth more runs
_LINE = re.compile(r"(?P<work>.+): (?P<way>[^:]+)")


class Timed(Protocol):
    """A net, as far as its kernels are timed."""

    @property
    def times_kernels(self) -> bool:
        """Whether the mode "auto" times them."""

    def works(self) -> Iterator[Mapping[str, Callable[[], dict[str, float]]]]:
        """Iterate over each layer's pieces of work; each returns the seconds of its kernels, the fixed one's first."""


class Choices:
    """Map pieces of work, each a line of text that names its kind and shapes, to the kernels that do them.

    `mode` is one of four:

    - "fixed": each engine's own rule, and whatever `taken` holds;
    - "timed": `time` adds what is missing;
    - "auto": timed for nets whose engine asks for it, fixed for others;
    - a file: read, timed, and written where it did not have all (swCaffe section VI.A times its first two iterations).

    Only one rank times; the others get its `taken`. Raise PlanError for a file that is no plan.
    """

    def __init__(self, mode: str = AUTO):
        self.mode, self.taken = mode, dict[str, str]()
        if mode not in (AUTO, FIXED, TIMED) and os.path.exists(mode):
            self.taken = parse(_lines_of(mode), mode)

    def of(self, work: str, fixed: str) -> str:
        """Return the kernel for that work: `fixed` where none was found to be better."""
        return self.taken.get(work, fixed)

    def time(self, nets: Iterable[Timed]) -> dict[str, str]:
        """Time the kernels of all work in the nets that has none yet, take the fastest, and return `taken`.

        The nets' values stay as they are.
        """
        known, start = len(self.taken), time.perf_counter()
        for net in nets:
            if self.mode == FIXED or (self.mode == AUTO and not net.times_kernels):
                continue
            for work, measure in (item for works in net.works() for item in works.items()):
                if work not in self.taken:
                    self._take(work, measure())
        if len(self.taken) > known:
            log.info("Plan: timed %d pieces of work in %.1f s", len(self.taken) - known, time.perf_counter() - start)
            if self.mode not in (AUTO, TIMED):
                write_atomically(self.mode, "".join(f"{line}\n" for line in self.lines()).encode())
        return self.taken

    def _take(self, work: str, seconds: dict[str, float]) -> None:
        """Take the fastest kernel, if there is any; the first of them is the fixed one."""
        if not seconds:
            return
        fixed = next(iter(seconds))
        best = min(seconds, key=lambda way: seconds[way] * (MARGIN if way == fixed else 1))
        self.taken[work] = best
        log.info("Plan: %s: %s, %s of %s's time", work, best, f"{seconds[best] / seconds[fixed]:.2f}", fixed)

    def lines(self) -> list[str]:
        """Return a line `work: way` for each choice."""
        return [f"{work}: {way}" for work, way in self.taken.items()]


def _lines_of(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError as error:
        raise PlanError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise PlanError(f"{path}: not a text file, so no plan") from None


def parse(lines: Iterable[str], source: str) -> dict[str, str]:
    """Return the choices of `lines`. Raise PlanError, naming `source`, for a line that is none."""
    taken = {}
    for number, line in enumerate(lines, 1):
        if not (found := _LINE.fullmatch(line.strip())):
            raise PlanError(f"{source}, line {number}: expected 'work: way', got '{line.strip()}'")
        taken[found["work"]] = found["way"]
    return taken


def elapsed(run: Callable[[], object]) -> float:
    """Return the seconds until `run` has returned."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def seconds(
    run: Callable[[], object],
    best: float = float("inf"),
    measure: Callable[[Callable[[], object]], float] = elapsed,
) -> float:
    """Return the least time that `run` took, once run to warm up; one run where it is far slower than `best`."""
    run()
    taken = float("inf")
    for _ in range(RUNS):
        taken = min(taken, measure(run))
        if taken > HOPELESS * best:
            break
    return taken
