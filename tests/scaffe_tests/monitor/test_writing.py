"""Numbers reach their writers in order, in a thread that no writer's failure ends."""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from threading import current_thread, main_thread

from scaffe.monitor.log import log
from scaffe.monitor.numbers import Numbers
from scaffe.monitor.writing import Writing


class Kept:
    """A writer that keeps what it gets, and fails where its disk is full."""

    def __init__(self, name: str, error: Exception | None = None):
        self.name, self.error, self.closed = name, error, 0
        self.iterations: list[int] = []
        self.threads: set[str] = set()

    def write(self, numbers: Sequence[Numbers]) -> None:
        if self.error:
            raise self.error
        self.iterations += [one.iteration for one in numbers]
        assert current_thread() is not main_thread()

    def close(self) -> None:
        self.closed += 1


def test_all_numbers_are_written_in_order_before_close_returns() -> None:
    kept = Kept("file")
    writing = Writing([kept])
    for iteration in range(100):
        writing.put(Numbers(iteration))
    writing.close()
    assert kept.iterations == list(range(100)) and kept.closed


def test_a_full_disk_is_reported_once_and_others_get_all(monkeypatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(log, "warning", lambda text, *given: lines.append(text % given))
    monkeypatch.setattr(logging, "raiseExceptions", True)
    full = Kept("tensorboard 'runs'", OSError(errno.ENOSPC, "No space left on device"))
    kept = Kept("metrics 'run.prom'")
    writing = Writing([full, kept])
    for iteration in range(0, 100, 20):
        writing.put(Numbers(iteration))
    writing.close()
    assert kept.iterations == [0, 20, 40, 60, 80]
    (line,) = lines
    assert line.startswith("tensorboard 'runs': numbers of iteration ")
    assert line.endswith(" are lost: no space left on device; training goes on")


def test_any_error_is_reported_in_its_own_words(monkeypatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(log, "warning", lambda text, *given: lines.append(text % given))
    failing, kept = Kept("file", ValueError("Runs/A: no Number")), Kept("other")
    writing = Writing([failing, kept])
    writing.put(Numbers(0))
    writing.close()
    assert kept.iterations == [0]
    assert lines == ["file: numbers of iteration 0 are lost: Runs/A: no Number; training goes on"]


def test_closing_twice_and_from_its_own_thread_closes_the_writers_once() -> None:
    class Closing(Kept):
        def write(self, numbers: Sequence[Numbers]) -> None:
            writing.close()  # as if Python collected the solver here
            super().write(numbers)

    closing = Closing("file")
    writing = Writing([closing])
    writing.put(Numbers(0))
    thread = writing._thread
    assert thread is not None
    thread.join(900)
    writing.close()
    assert closing.iterations == [0] and closing.closed == 1


def test_what_is_never_used_has_no_thread_and_closes() -> None:
    kept = Kept("file")
    Writing([kept]).close()
    assert kept.closed and not kept.iterations
