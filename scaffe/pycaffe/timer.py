"""pycaffe's Timer."""

from __future__ import annotations

import time

from scaffe import defaults


class Timer:
    """Measure the time from `start` to `stop`; on a GPU both wait until its work is done."""

    def __init__(self) -> None:
        self._start = self._seconds = 0.0
        self._runs = False

    def start(self) -> None:
        """Begin to measure, if the timer does not run."""
        if not self._runs:
            defaults.wait()
            self._start, self._runs = time.perf_counter(), True

    def stop(self) -> None:
        """End measuring, if the timer runs."""
        if self._runs:
            defaults.wait()
            self._seconds, self._runs = time.perf_counter() - self._start, False

    @property
    def ms(self) -> float:
        """Milliseconds of the last run, which this ends if it is not over; 0 before the first."""
        self.stop()
        return 1000 * self._seconds
