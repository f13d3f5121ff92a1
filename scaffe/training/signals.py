"""Signals that request a stop or a snapshot of a training run: noted on arrival, handled between iterations.

Those that arrive while the process starts are held back until they can be noted, and again once training is over.
"""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any

ACTIONS = (
    "none",
    "snapshot",
    "stop",
    "requeue",
)  # requeue: snapshot, stop, and exit so that a batch script starts anew
REQUEUE_EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h
SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1


def hold() -> None:
    """Hold the signals of this process back, for the threads that it starts too, until `take_held`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def take_held() -> set[int]:
    """Let signals arrive, also those that were held back; return which ones were blocked before."""
    return {*map(int, signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS))}


class Signals:
    """Note, within a `with` block, the actions that signals request of this rank.

    The two effects are the actions of SIGINT and SIGHUP. SIGUSR1 and SIGTERM, with which batch systems announce the
    end of a job, request "requeue". Only a process's main thread can enter the block. Signals that `hold` has held back
    arrive when the block begins, and are held back again behind it.
    """

    def __init__(self, sigint_effect: str = "stop", sighup_effect: str = "snapshot"):
        self.effects = {signal.SIGINT: sigint_effect, signal.SIGHUP: sighup_effect}
        self.effects |= {signal.SIGUSR1: "requeue", signal.SIGTERM: "requeue"}
        self.asked: set[str] = set()
        self._before: dict[signal.Signals, Any] = {}
        self._held: set[int] = set()

    def __enter__(self) -> Signals:
        self._before = {number: signal.signal(number, self._note) for number in self.effects}
        self._held = take_held()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, self._held)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked.add(self.effects[signal.Signals(number)])

    def take(self) -> list[bool]:
        """Return for each of ACTIONS whether it was requested since the last call."""
        asked, self.asked = self.asked, set()
        return [action in asked for action in ACTIONS]
