"""Processes take turns in virtual time; their errors, and those of a system without threads, show."""

from __future__ import annotations

from threading import Thread

import pytest

from collectives.errors import ScheduleError
from collectives.simulation.virtual_time import Process, Scheduler


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


def test_events_come_by_time_in_the_order_of_their_calls_and_last_ones_last(scheduler: Scheduler) -> None:
    seen: list[tuple[float, str]] = []
    for seconds, name, last in ((2, "c", False), (1, "z", True), (1, "a", False), (1, "b", False)):
        scheduler.at(seconds, lambda name=name: seen.append((scheduler.now, name)), last)  # type: ignore[misc]
    scheduler.run()
    assert seen == [(1, "a"), (1, "b"), (1, "z"), (2, "c")]


def test_a_process_runs_until_it_pauses(scheduler: Scheduler) -> None:
    seen: list[object] = []

    def work() -> None:
        seen.append(scheduler.now)
        scheduler.at(5, process.resume)
        process.pause()
        seen.append(scheduler.now)

    process = scheduler.start(work)
    scheduler.at(3, lambda: seen.append("another's"))
    scheduler.run()
    assert seen == [0, "another's", 5] and process.ended


def test_processes_that_nobody_resumes_are_counted_and_ended(scheduler: Scheduler) -> None:
    stuck: list[Process] = []
    stuck += [scheduler.start(lambda: stuck[0].pause()), scheduler.start(lambda: None)]
    with pytest.raises(ScheduleError, match="1 of 2 simulated ranks wait forever"):
        scheduler.run()
    assert all(process.ended for process in stuck)


def test_an_error_of_a_process_is_raised_and_ends_the_others(scheduler: Scheduler) -> None:
    def fail() -> None:
        raise KeyError("bad")

    other = scheduler.start(lambda: other.pause())
    scheduler.start(fail)
    with pytest.raises(KeyError, match="bad"):
        scheduler.run()
    assert other.ended


def test_where_there_are_no_threads_left_is_an_error(monkeypatch: pytest.MonkeyPatch, scheduler: Scheduler) -> None:
    """The second process gets none; the first one, which waits, ends."""
    start, started = Thread.start, []

    def full(thread: Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(Thread, "start", full)
    first = scheduler.start(lambda: first.pause())
    scheduler.start(lambda: None)
    with pytest.raises(ScheduleError, match="too many simulated ranks, each of which is a thread: can't start new"):
        scheduler.run()
    assert not started[0].is_alive()
