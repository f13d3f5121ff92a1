"""Watch: the thread of a rank that watches over the job, by probes that each look at one thing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Protocol

from scaffe.monitor.log import log

LONGEST_NAP = 1.0  # seconds between two looks


def nap_of(seconds: float) -> float:
    """Return the seconds between two looks of a probe that notices what lasts for so many seconds."""
    return min(LONGEST_NAP, seconds / 8)


class Probe(Protocol):
    """What a watch looks at, about every `nap` seconds. One that gets no records has `look` alone of its own."""

    nap: float

    def look(self) -> None:
        """Look, and act on what is found."""

    def covers(self, number: int) -> bool:
        """Return whether the process that was started as rank `number` is one that this probe gets records of."""
        return False

    def is_stuck(self) -> bool:
        """Return whether this rank has waited for long by its records, and is the one of its host that acts."""
        return False


class Watch:
    """A thread that runs as long as there are probes. Its probes look in turn, and outlive their own errors."""

    def __init__(self) -> None:
        self._probes: list[Probe] = []
        self._lock = threading.Lock()  # held by a round of looks
        self._changed = threading.Event()
        self._failure = ""  # that was reported
        self.thread: threading.Thread | None = None

    def add(self, probe: Probe) -> None:
        """Let a probe look from now on."""
        self._probes = [*self._probes, probe]
        self._changed.set()
        if self.thread is None:
            self.thread = threading.Thread(target=self._run, name="watch", daemon=True)
            self.thread.start()

    def remove(self, probe: Probe | None) -> None:
        """Let a probe look no more, once its last look is over. Do nothing for one that is not there."""
        with self._lock:
            self._probes = [one for one in self._probes if one is not probe]
        self._changed.set()
        if self.thread is not None and not self._probes:
            self.thread.join()
            self.thread = None

    def over(self, number: int) -> Iterator[Probe]:
        """Yield the probes that get records of the process that was started as rank `number`."""
        return (one for one in self._probes if one.covers(number))

    def _run(self) -> None:
        while probes := self._probes:
            if self._changed.wait(min(one.nap for one in probes)):
                self._changed.clear()
                continue
            with self._lock:
                for probe in self._probes:
                    self._look(probe)

    def _look(self, probe: Probe) -> None:
        try:
            probe.look()
        except Exception as error:  # the watch must outlive its own errors
            failure = f"{type(error).__name__}: {error}"
            if failure != self._failure:
                log.error("The stall watchdog failed and continues: %s", failure)
            self._failure = failure


class Standstill:
    """How long something has stood still: `seconds`, as far as they were watched; `is_met`: whether this was met."""

    seconds, is_met = 0.0, False
    _mark: object = None

    def look(self, mark: object, seconds: float) -> None:
        """Count `seconds` since the last look, unless there is no mark of a standstill, or another one than before."""
        if mark is None or mark != self._mark:
            self.seconds, self.is_met, self._mark = 0.0, False, mark
        else:
            self.seconds += seconds

    def reaches(self, seconds: float) -> bool:
        """Return whether it has lasted so long, and was not met."""
        return self.seconds >= seconds and not self.is_met
