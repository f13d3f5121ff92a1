"""Work in threads whose results come in order."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.in_order import AHEAD, in_order


@settings(max_examples=20)
@given(count=st.integers(0, 60), threads=st.integers(1, 4), group=st.integers(1, 7))
def test_results_are_those_of_a_plain_loop(count, threads, group):
    assert list(in_order(lambda n: n * n, range(count), threads, group)) == [n * n for n in range(count)]


def test_an_item_is_done_while_another_one_waits():
    second = threading.Event()

    def work(item: int) -> int:
        if item == 0:
            assert second.wait(900)
        else:
            second.set()
        return item

    assert list(in_order(work, range(2), threads=2)) == [0, 1]


def test_few_items_are_taken_ahead():
    taken: list[int] = []

    def items():
        for number in range(1000):
            taken.append(number)
            yield number

    results = in_order(lambda n: n, items(), threads=2, group=3)
    assert next(results) == 0
    assert len(taken) <= 3 * (2 * AHEAD + 1)
    results.close()


def test_an_exception_comes_in_its_items_place():
    def work(item: int) -> int:
        if item in (7, 5):
            raise ValueError(item)
        return item

    results = in_order(work, range(1000), threads=3)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="5"):
        next(results)


def test_there_is_a_thread_for_each_core_unless_told_otherwise(monkeypatch):
    """All of three threads meet in their first items, which fewer could not."""
    monkeypatch.setattr("readers.in_order.os.sched_getaffinity", lambda _: range(3))
    meeting = threading.Barrier(3)

    def work(item: int) -> str:
        meeting.wait(900)
        return threading.current_thread().name

    assert len(set(in_order(work, range(3)))) == 3


def test_no_thread_outlives_its_results():
    def workers():
        return {thread for thread in threading.enumerate() if thread.name.startswith("in_order")}

    before = workers()
    results = in_order(lambda n: n, range(1000), threads=4)
    next(results)
    assert workers() - before
    results.close()
    assert not workers() - before
