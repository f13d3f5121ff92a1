"""The watch's thread: its probes look in turn, outlive their errors, and look no more once they are removed."""

from __future__ import annotations

import threading

import pytest

from scaffe.parallel.watch import watch as module
from scaffe.parallel.watch.watch import Probe, Standstill, Watch

LONG = 900


class Looking(Probe):
    """A probe that notes its looks, and does something in each."""

    nap = 0.001

    def __init__(self, then=lambda look: None, number: int = 0):
        self.looks, self.then, self.number = 0, then, number

    def look(self) -> None:
        self.looks += 1
        self.then(self.looks)

    def covers(self, number: int) -> bool:
        return number == self.number


def test_a_probe_that_fails_is_told_of_once_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    said, third = [], threading.Event()
    monkeypatch.setattr(module.log, "error", lambda text, *given: said.append(text % given))
    failing = Looking(lambda look: [][look])
    other = Looking(lambda look: third.set() if look == 3 else None)
    watch = Watch()
    watch.add(failing)
    watch.add(other)
    assert third.wait(LONG)
    watch.remove(failing)
    watch.remove(other)
    assert failing.looks >= 2 and watch.thread is None
    assert said == ["The stall watchdog failed and continues: IndexError: list index out of range"]


def test_one_thread_serves_all_probes_and_ends_with_the_last() -> None:
    watch, names, both = Watch(), set(), threading.Barrier(2)

    def note(look: int) -> None:
        names.add(threading.current_thread().name)
        if look == 1:
            both.wait(LONG)

    probes = [Looking(note), Looking(note, 1)]
    for probe in probes:
        watch.add(probe)
        both.wait(LONG)
    thread = watch.thread
    assert thread is not None and list(watch.over(1)) == [probes[1]]
    watch.remove(probes[0])
    assert thread.is_alive() and names == {"watch"}
    watch.remove(probes[1])
    assert not thread.is_alive()


def test_a_probe_that_is_removed_is_not_in_a_look() -> None:
    """Its memory may be given back at once."""
    watch, begun, go_on, ended = Watch(), threading.Event(), threading.Event(), []

    def slow(look: int) -> None:
        begun.set()
        go_on.wait(LONG)
        ended.append(look)

    probe = Looking(slow)
    watch.add(probe)
    assert begun.wait(LONG)
    remover = threading.Thread(target=watch.remove, args=[probe])
    remover.start()
    assert ended == []
    go_on.set()
    remover.join()
    assert len(ended) == probe.looks


def test_only_time_at_the_same_mark_counts() -> None:
    still = Standstill()
    for mark, expected in ((5, 0), (5, 2), (5, 4), (6, 0), (6, 2), (None, 0), (6, 0)):
        still.look(mark, 2)
        assert still.seconds == expected
    still.look(6, 2)
    assert still.reaches(2) and not still.reaches(3)
    still.is_met = True
    assert not still.reaches(2)
