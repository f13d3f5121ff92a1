"""Timer: milliseconds from start to stop."""

from __future__ import annotations

import pytest

import scaffe.pycaffe as caffe
from scaffe import defaults
from scaffe.pycaffe import timer


@pytest.fixture
def clock(monkeypatch):
    """A clock, in seconds, that the test turns."""
    clock = {"now": 5.0}
    monkeypatch.setattr(timer.time, "perf_counter", lambda: clock["now"])
    return clock


def test_it_measures_from_start_to_stop(clock):
    it = caffe.Timer()
    assert it.ms == 0
    it.start()
    clock["now"] = 5.25
    it.start()  # it runs
    clock["now"] = 5.5
    it.stop()
    clock["now"] = 9
    it.stop()
    assert it.ms == 500
    it.start()
    clock["now"] = 10
    assert it.ms == it.ms == 1000


def test_it_waits_for_the_work_on_a_gpu(clock, monkeypatch):
    class Gpu:
        def wait(self):
            clock["now"] += 1

    monkeypatch.setattr(defaults, "_gpus", {0: Gpu()})
    it = caffe.Timer()
    it.start()
    it.stop()
    assert it.ms == 1000
