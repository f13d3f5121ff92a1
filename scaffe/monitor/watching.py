"""Watching: the settings of what is recorded of a run: numbers, timeline, stalls."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

from scaffe.errors import ScaffeError
from scaffe.setting import check_fields, setting

STALL_SECONDS = 60.0
LEAST_STALL = 0.1  # seconds, in which a watchdog looks eight times
STALL = ABORT, SHRINK, SAY = "abort", "shrink", "say"  # what a stall leads to
EVERY = 100  # iterations between two measurements, where the solver displays nothing


@dataclass(frozen=True)
class Watching:
    """The numbers that a run writes while it trains, its timeline, and the stall watchdog.

    The root writes the loss, outputs, speed, waits and norms to event files in the folder `tensorboard`, and to the
    file `metrics` in Prometheus's text format; "" writes none. They are measured every `measure_every` iterations; 0 is
    the solver's `display`, or EVERY where it has none.

    `timeline` is a file to write when the solver closes: the spans of each rank's threads over the last iterations, in
    Chrome's trace format; "" writes none. A rank that waits for others for `stall_seconds` (0: never) logs which ranks
    are missing and their last operation. With `stall` "abort", or `stall_abort`, it ends the job too. With "shrink",
    which needs Run.on_rank_loss "shrink", ranks that hang are ended, and the others go on (see hanging.py). "" and
    "say" only log. Raise ScaffeError for other values.
    """

    timeline: str | os.PathLike[str] = setting("", "write what each thread did when, for Perfetto", metavar="FILE.json")
    tensorboard: str | os.PathLike[str] = setting(
        "", "write loss, outputs, speed, waits and norms as TensorBoard's curves", metavar="DIR", rare=True
    )
    metrics: str | os.PathLike[str] = setting(
        "", "write the same numbers for Prometheus's node exporter", metavar="FILE.prom", rare=True
    )
    measure_every: int = setting(
        0, f"iterations between these numbers; 0: the solver's display, or {EVERY}", metavar="N", rare=True
    )
    stall_seconds: float = setting(STALL_SECONDS, "name ranks missing for S seconds; 0: never", metavar="S")
    stall: str = setting(
        "",
        "then: abort the job, shrink it to the ranks that move, or only say it",
        choices=STALL,
        rare=True,
    )
    stall_abort: bool = setting(False, "the same as --stall abort", rare=True)

    def __post_init__(self) -> None:
        check_fields(self, Watching)
        if not 0 <= self.stall_seconds <= threading.TIMEOUT_MAX:
            raise ScaffeError(f"stall_seconds must be 0 (off) or more, got {self.stall_seconds:g}")
        if 0 < self.stall_seconds < LEAST_STALL:
            raise ScaffeError(f"stall_seconds must be 0 (off), or {LEAST_STALL:g} or more, got {self.stall_seconds:g}")
        if self.stall and self.stall not in STALL:
            raise ScaffeError(f"unknown stall '{self.stall}'; known: {' '.join(STALL)}")
        if self.stall_abort and self.stall not in ("", ABORT):
            raise ScaffeError(f"stall '{self.stall}' and stall_abort, which is stall 'abort': leave one of them out")
        if self.measure_every < 0:
            raise ScaffeError(f"measure_every must be 0 (the solver's display) or more, got {self.measure_every}")
        if self.metrics and not os.fspath(self.metrics).endswith(".prom"):
            raise ScaffeError(f"metrics '{self.metrics}': a node exporter reads FILE.prom alone; give it that suffix")

    @property
    def at_stall(self) -> str:
        """What a stall leads to, one of STALL."""
        return ABORT if self.stall_abort else self.stall or SAY

    @property
    def measures(self) -> bool:
        """Whether numbers are written while the run trains."""
        return bool(self.tensorboard or self.metrics)
