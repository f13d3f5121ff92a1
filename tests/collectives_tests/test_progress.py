"""Who waits for one thing advances all that is under way, and each raises what has failed in it."""

import threading

import pytest

from collectives.progress import ProgressEngine


class Steps:
    """A collective of a few steps, the last of which may fail."""

    failure = None

    def __init__(self, progress, count, error=None):
        self.all, self.left, self.error, self.advances = progress, count, error, 0
        progress.add(self)

    def progress(self):
        return self.all.step(self, self.advance)

    def advance(self):
        self.advances += 1
        self.left -= 1
        if self.left == 0:
            self.all.drop(self)
            if self.error:
                raise self.error
        return True

    def is_done(self):
        return self.left <= 0


@pytest.fixture
def progress():
    return ProgressEngine()


def test_a_wait_for_one_advances_the_others_and_leaves_what_has_ended(progress):
    short, long = Steps(progress, 2), Steps(progress, 5)
    progress.wait_until(long.is_done, long)
    assert short.is_done() and short.advances == 2 and not progress.is_busy


def test_nothing_is_advanced_beyond_the_end_of_the_wait(progress):
    short, long = Steps(progress, 2), Steps(progress, 5)
    progress.wait_until(short.is_done, short)
    assert long.advances == 2 and progress.is_busy


def test_a_failure_elsewhere_is_raised_there_and_once(progress):
    bad, good = Steps(progress, 1, KeyError("bad")), Steps(progress, 3)
    progress.wait_until(good.is_done, good)
    assert bad.advances == 1
    with pytest.raises(KeyError, match="bad"):
        bad.progress()
    assert bad.failure is None


def test_a_failure_of_its_own_ends_the_wait_and_is_left_alone_afterwards(progress):
    bad = Steps(progress, 2, KeyError("bad"))
    with pytest.raises(KeyError, match="bad"):
        progress.wait_until(lambda: False, bad)
    assert bad.advances == 2 and not progress.is_busy


def test_what_nobody_holds_any_more_is_forgotten(progress):
    Steps(progress, 9)
    good = Steps(progress, 1)
    progress.wait_until(good.is_done, good)
    assert not progress.is_busy


def test_an_end_that_comes_as_the_thread_falls_asleep_ends_it() -> None:
    engine = ProgressEngine()

    class EndsNow(threading.Event):
        """A flag that another thread sets, to end the first, just before that one clears it."""

        def clear(self) -> None:
            engine._ends = True
            super().clear()

        def wait(self, timeout: float | None = None) -> bool:
            raise AssertionError("it sleeps for ever")

    engine._has_work = EndsNow()
    engine._run()
