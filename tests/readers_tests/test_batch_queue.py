"""Reader threads and their two queues: order, a fixed population, errors, and its end."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from readers import Batch, BatchQueue, EndOfBatches, ReaderError
from readers import batch_queue as module

LIMIT = 900  # seconds until a wait that should be short is a failure


def population(count: int) -> list[Batch]:
    return [Batch(np.zeros((1, 1, 1, 1), np.float32), np.zeros(1, np.float32)) for _ in range(count)]


def write_number(number: int, batch: Batch) -> None:
    batch.data[...] = number


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `close` wait until its threads have ended, however slow the machine is."""
    monkeypatch.setattr(module, "PATIENCE", float(LIMIT))


class Gate:
    """A read that waits to be let through, and tells when it has begun."""

    def __init__(self):
        self.begun, self.open = threading.Semaphore(0), threading.Semaphore(0)

    def read(self, number: int, batch: Batch) -> None:
        self.begun.release()
        assert self.open.acquire(timeout=LIMIT)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_batches_come_in_order_and_are_the_same_few_objects(count):
    batches = population(count)
    with BatchQueue(write_number, itertools.count(10), batches) as queue:
        for number in range(10, 40):
            batch = queue.get()
            assert any(batch is one for one in batches)
            assert (batch.number, batch.data.item()) == (number, number)
            queue.recycle(batch)
        assert queue.batches_taken == 30


def test_the_thread_reads_ahead_as_far_as_the_population_reaches():
    gate = Gate()
    with BatchQueue(gate.read, itertools.count(), population(3)) as queue:
        gate.open.release(10)
        for _ in range(3):
            assert gate.begun.acquire(timeout=LIMIT)
        first = queue.get()
        queue.get()
        assert not gate.begun.acquire(blocking=False)
        queue.recycle(first)
        assert gate.begun.acquire(timeout=LIMIT)


def test_a_batch_belongs_to_the_caller_until_it_is_recycled():
    with BatchQueue(write_number, itertools.count(), population(2)) as queue:
        kept = queue.get()
        for _ in range(5):
            queue.recycle(queue.get())
        assert kept.data.item() == 0


def test_after_the_last_batch_the_end_is_told_each_time():
    with BatchQueue(write_number, [4, 7], population(4)) as queue:
        assert [queue.get().number, queue.get().number] == [4, 7]
        for _ in range(2):
            with pytest.raises(EndOfBatches, match="all batches have been read"):
                queue.get()


def test_what_the_reader_thread_raised_is_raised_where_the_batch_is_awaited():
    def read(number: int, batch: Batch) -> None:
        if number == 2:
            raise ZeroDivisionError("in batch 2")

    with BatchQueue(read, itertools.count(), population(4)) as queue:
        assert [queue.get().number, queue.get().number] == [0, 1]
        for _ in range(2):
            with pytest.raises(ZeroDivisionError, match="in batch 2"):
                queue.get()


def test_an_error_in_the_batch_numbers_is_raised_too():
    def numbers():
        yield 0
        raise KeyError("numbers")

    with BatchQueue(write_number, numbers(), population(2)) as queue:
        queue.get()
        with pytest.raises(KeyError, match="numbers"):
            queue.get()


def test_closing_ends_the_thread_in_whatever_it_waits_for():
    gate = Gate()
    waiting = BatchQueue(write_number, itertools.count(), population(1))
    reading = BatchQueue(gate.read, itertools.count(), population(1))
    assert gate.begun.acquire(timeout=LIMIT)
    gate.open.release()
    for queue in (waiting, reading):
        queue.close()
        queue.close()
        assert not any(thread.is_alive() for thread in queue._threads)
        with pytest.raises(ReaderError, match="closed"):
            queue.get()


def test_no_batch_is_read_after_the_end_was_asked_for():
    known, numbers = threading.Event(), []

    def read(number: int, batch: Batch) -> None:
        assert known.wait(LIMIT)
        numbers.append(number)
        queue._stop()  # as when the last reference is dropped in the reader thread itself

    queue = BatchQueue(read, itertools.count(), population(4))
    known.set()
    queue._threads[0].join(LIMIT)
    assert not any(thread.is_alive() for thread in queue._threads)
    assert numbers == [0]


def test_a_forgotten_queue_ends_its_thread():
    queue = BatchQueue(write_number, itertools.count(), population(2))
    [thread] = queue._threads
    queue.get()
    del queue
    gc.collect()
    thread.join(LIMIT)
    assert not thread.is_alive()


def test_a_queue_that_is_never_closed_does_not_keep_the_interpreter():
    program = """if True:
        import itertools, numpy as np
        from readers import Batch, BatchQueue
        one = Batch(np.zeros((1, 1, 1, 1), np.float32), np.zeros(1, np.float32))
        queue = BatchQueue(lambda number, batch: None, itertools.count(), [one])
        queue.get()
        print("got it")
    """
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=LIMIT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "got it\n", "")


def test_several_threads_fill_at_once_and_the_batches_still_come_in_order():
    """The first batch is full only after the third has been begun, so by another thread."""
    third = threading.Event()

    def read(number: int, batch: Batch) -> None:
        if number == 2:
            third.set()
        assert number or third.wait(LIMIT)
        batch.data[...] = number

    with BatchQueue(read, range(20), population(4), threads=3) as queue:
        for number in range(20):
            batch = queue.get()
            assert (batch.number, batch.data.item()) == (number, number)
            queue.recycle(batch)
        with pytest.raises(EndOfBatches):
            queue.get()


def test_what_one_of_several_threads_raised_comes_in_the_place_of_its_batch_and_ends_all():
    failed = threading.Event()

    def read(number: int, batch: Batch) -> None:
        if number == 1:
            failed.set()
            raise ZeroDivisionError("in batch 1")
        assert failed.wait(LIMIT)

    with BatchQueue(read, itertools.count(), population(4), threads=3) as queue:
        assert queue.get().number == 0
        with pytest.raises(ZeroDivisionError, match="in batch 1"):
            queue.get()
        for thread in queue._threads:
            thread.join(LIMIT)
        assert not any(thread.is_alive() for thread in queue._threads)


def test_closing_ends_all_threads_in_whatever_they_wait_for():
    gate = Gate()
    queue = BatchQueue(gate.read, itertools.count(), population(3), threads=2)
    for _ in range(2):
        assert gate.begun.acquire(timeout=LIMIT)
    gate.open.release(3)  # a thread may have begun the last batch by then
    queue.close()
    assert not any(thread.is_alive() for thread in queue._threads)


def test_a_thread_that_never_comes_back_does_not_hold_the_one_that_closes(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    gate = Gate()
    queue = BatchQueue(gate.read, itertools.count(), population(1))
    assert gate.begun.acquire(timeout=LIMIT)
    queue.close()
    assert any(thread.is_alive() for thread in queue._threads)
    gate.open.release()
    queue._threads[0].join(LIMIT)
    assert not any(thread.is_alive() for thread in queue._threads)


def test_the_seconds_spent_waiting_are_summed(monkeypatch):
    queue = BatchQueue(write_number, range(3), population(4))
    queue._threads[0].join(LIMIT)
    clock = itertools.count()
    monkeypatch.setattr(module, "perf_counter", lambda: float(next(clock)))
    for _ in range(3):
        queue.get()
    assert queue.seconds_waited == 3.0


def test_a_population_of_none_and_no_thread_are_refused():
    with pytest.raises(ReaderError, match="one batch at least"):
        BatchQueue(write_number, itertools.count(), [])
    with pytest.raises(ReaderError, match="one reader thread at least, got 0"):
        BatchQueue(write_number, itertools.count(), population(1), threads=0)
