"""Drives: who computes and who lets messages go on; what fails in one thread is told in the other."""

import os
import threading

import pytest

from scaffe.parallel.drive import Helper, Hook
from scaffe.parallel.meter import Meter


class Messages:
    """A way on which so many messages move, each when it has been let."""

    def __init__(self, count=0):
        self.count, self.moved, self.threads = count, 0, set()
        self.meter = Meter("messages")

    def progress(self):
        self.threads.add(threading.current_thread().name)
        self.moved += self.moved < self.count
        return self.moved <= self.count

    def idle(self):
        return self.moved == self.count


@pytest.fixture(params=[Hook, Helper])
def drive(request):
    made = request.param()
    yield made
    made.close()


def test_work_waits_for_messages_that_the_main_thread_moves(drive):
    messages, seen = Messages(20), []
    drive.transfers = (messages,)

    def work():
        drive.between()
        drive.wait(lambda: messages.moved == 20)
        seen.append((messages.moved, threading.current_thread().name))

    drive.run([work])
    assert seen == [(20, "compute" if isinstance(drive, Helper) else "MainThread")]
    assert messages.threads == {"MainThread"}


def test_the_thread_that_computes_lets_the_main_thread_go_first():
    drive, found = Helper(), []
    drive.run([lambda: found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))])
    drive.close()
    assert found[0] > os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_what_the_work_raises_is_raised_to_the_caller_and_the_next_work_runs(drive):
    drive.transfers = (Messages(),)
    for number in range(3):
        with pytest.raises(ZeroDivisionError):
            drive.run([lambda: 1 // 0])
        done = []
        drive.run([lambda number=number, done=done: done.append(number)])
        assert done == [number]


def test_a_failure_of_messages_ends_the_work_that_waits_for_them(drive):
    class Broken(Messages):
        def progress(self):
            raise ConnectionError("a rank is gone")

    drive.transfers = (Broken(1),)
    with pytest.raises(ConnectionError, match="a rank is gone"):
        drive.run([lambda: drive.wait(lambda: False)])


class Counted(threading.Condition):
    """A condition that counts how often all are woken."""

    woken = 0

    def notify_all(self):
        self.woken += 1
        super().notify_all()


def test_threads_that_wait_for_messages_are_woken_when_one_moves():
    drive, messages, moved = Helper(), Messages(1), threading.Event()
    progress = messages.progress
    messages.progress = lambda: (progress(), moved.set())[0]
    drive._moved, drive.transfers = Counted(), (messages,)
    drive.run([lambda: moved.wait() and drive.between()])
    assert drive._moved.woken
    drive.close()
