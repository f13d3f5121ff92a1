"""CrewDrive: passes of several instances in their threads, without a barrier, while the main thread moves messages."""

import threading
from functools import partial

import pytest

from scaffe.monitor.record import RankRecord
from scaffe.parallel.instances.crew import Crew
from scaffe.parallel.instances.drive import CrewDrive
from scaffe.parallel.instances.gradient_sums import BrokenOffError
from scaffe.parallel.instances.places import Place
from scaffe.parallel.instances.topology import read_topology
from scaffe.parallel.meter import Meter

PATIENCE = 900  # seconds
CORES = read_topology().cores[:1]


class Messages:
    """Messages of which each `progress` moves one, until `count` have moved."""

    def __init__(self, count=0):
        self.count, self.moved, self.threads = count, 0, set()
        self.meter = Meter("messages")

    def progress(self):
        self.threads.add(threading.current_thread())
        self.moved += self.moved < self.count
        return self.moved <= self.count

    def idle(self):
        return self.moved == self.count


@pytest.fixture
def drive():
    found = []
    with Crew([Place(i, 0, CORES) for i in range(3)], lambda error: found[0].release(error)) as crew:
        found.append(CrewDrive(crew, RankRecord(), [RankRecord() for _ in crew.places]))
        yield found[0]


def test_each_instance_calls_its_work_in_its_thread(drive):
    seen = {}
    drive.run([lambda i=i: seen.setdefault(i, threading.current_thread().name) for i in range(3)])
    assert seen == {i: f"instance {i}" for i in range(3)}


def test_an_instance_begins_its_backward_pass_while_another_is_in_its_forward_pass(drive):
    begun = threading.Event()
    forwards = [lambda: None, lambda: None, lambda: begun.wait(PATIENCE) or pytest.fail("there is a barrier")]
    drive.passes(forwards, lambda: None, [begun.set, lambda: None, lambda: None])


def test_the_main_thread_calls_middle_once_all_forward_passes_have_ended_and_none_waits_for_it(drive):
    ended, calls, called = [], [], threading.Event()

    def middle():
        calls.append((sorted(ended), threading.current_thread() is threading.main_thread()))
        called.set()

    backwards = [lambda: called.wait(PATIENCE) or pytest.fail("nobody called middle")] * 3
    drive.passes([partial(ended.append, i) for i in range(3)], middle, backwards)
    assert calls == [([0, 1, 2], True)]


def test_instances_wait_for_messages_that_the_main_thread_moves(drive):
    messages = Messages(50)
    drive.transfers = (messages,)
    drive.run([lambda: drive.wait(lambda: messages.moved == 50)] * 3)
    assert messages.threads == {threading.main_thread()}


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_an_error_ends_the_waits_of_the_others_and_is_raised(drive, phase):
    def fail():
        raise ZeroDivisionError

    drive.transfers = (Messages(),)
    wait, nothing, calls = partial(drive.wait, lambda: False), lambda: None, []
    works = [wait, fail, wait]
    given = (works, [nothing] * 3) if phase == "forward" else ([nothing] * 3, works)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            drive.passes(given[0], lambda: calls.append("middle"), given[1])
    assert calls == ([] if phase == "forward" else ["middle"] * 3)
    drive.run([nothing] * 3)


def test_an_error_of_the_main_thread_ends_the_waits_of_all(drive):
    errors = []

    def wait():
        try:
            drive.wait(lambda: False)
        except BrokenOffError as error:
            errors.append(type(error.__cause__))
            raise

    def middle():
        raise KeyboardInterrupt

    drive.transfers = (Messages(),)
    with pytest.raises(KeyboardInterrupt):
        drive.passes([lambda: None] * 3, middle, [wait] * 3)
    assert errors == [KeyboardInterrupt] * 3


def test_works_are_divided_over_the_instances(drive):
    done = []
    drive.each([partial(done.append, k) for k in range(40)])
    assert sorted(done) == list(range(40))
