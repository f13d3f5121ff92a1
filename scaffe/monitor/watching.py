"""Watching: the settings of the timeline and of the stall watchdog."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

from scaffe.errors import ScaffeError
from scaffe.setting import check_fields, setting

STALL_SECONDS = 60.0


@dataclass(frozen=True)
class Watching:
    """The timeline of a run, and the stall watchdog.

    `timeline` is a file to write when the solver closes: the spans of each rank's threads over the last iterations, in
    Chrome's trace format; "" writes none. A rank that waits for others for `stall_seconds` (0: never) logs which ranks
    are missing and their last operation; with `stall_abort` it ends the job. Raise ScaffeError for other values.
    """

    timeline: str | os.PathLike[str] = setting("", "write what each thread did when, for Perfetto", metavar="FILE.json")
    stall_seconds: float = setting(STALL_SECONDS, "name ranks missing for S seconds; 0: never", metavar="S")
    stall_abort: bool = setting(False, "end the job at the first report of a stall", rare=True)

    def __post_init__(self) -> None:
        check_fields(self, Watching)
        if not 0 <= self.stall_seconds <= threading.TIMEOUT_MAX:
            raise ScaffeError(f"stall_seconds must be 0 (off) or more, got {self.stall_seconds:g}")
