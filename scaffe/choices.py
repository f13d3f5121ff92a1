"""Choices: which of several ways a piece of work is done, found by timing them or given."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from scaffe.atomic import write_atomically
from scaffe.errors import PlanError
from scaffe.monitor.log import log

if TYPE_CHECKING:
    from scaffe.net import Net

AUTO, FIXED, TIMED = "auto", "fixed", "timed"
MARGIN = 0.93  # of the time of the way that is taken without timing: what another must stay below to replace it
RUNS = 3
HOPELESS = 1.3  # times as long as the best so far: not worth more runs
_LINE = re.compile(r"(?P<work>.+): (?P<way>[^:]+)")


class Choices:
    """Map pieces of work, each a line of text that names its kind and shapes, to the ways they are done.

    `mode` is "fixed", each engine's own rule and whatever `taken` has; "timed", where `time` adds what is missing;
    "auto", timed for nets on a GPU, unless what they compute is to repeat, and fixed for others;
    or a file to read and, where it had not all, to write (swCaffe section VI.A times its first two iterations).
    Only one rank times; the others get its `taken`. Raise PlanError for a file that is no plan.
    """

    def __init__(self, mode: str = AUTO):
        self.mode, self.taken = mode, dict[str, str]()
        if mode not in (AUTO, FIXED, TIMED) and os.path.exists(mode):
            self.taken = parse(_lines_of(mode), mode)

    def of(self, work: str, fixed: str) -> str:
        """Return the way to do that work: `fixed` where none was found to be better."""
        return self.taken.get(work, fixed)

    def time(self, nets: Iterable[Net]) -> dict[str, str]:
        """Time the ways of all work in the nets that has none yet, take the fastest, and return `taken`.

        The nets' values stay as they are.
        """
        known, start = len(self.taken), time.perf_counter()
        for net in filter(self._times, nets):
            for layer, node, bottom, top in zip(net.layers, net.nodes, net.bottoms, net.tops, strict=True):
                for work, ways in layer.works(bottom, top, any(node.down)).items():
                    if work not in self.taken:
                        self._take(work, ways())
        if len(self.taken) > known:
            log.info("Plan: timed %d pieces of work in %.1f s", len(self.taken) - known, time.perf_counter() - start)
            if self.mode not in (AUTO, TIMED):
                write_atomically(self.mode, "".join(f"{line}\n" for line in self.lines()).encode())
        return self.taken

    def _times(self, net: Net) -> bool:
        """Say whether the ways of a net's work are to be timed."""
        context = net.context
        return self.mode != FIXED and (self.mode != AUTO or (context.gpu is not None and not context.deterministic))

    def _take(self, work: str, seconds: dict[str, float]) -> None:
        """Take the fastest way, if there is any; the first of them is the fixed one."""
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
