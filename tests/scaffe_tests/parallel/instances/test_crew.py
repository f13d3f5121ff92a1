from __future__ import annotations

import logging
import os
import threading
from time import monotonic

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from scaffe.errors import LaunchError, ScaffeError, notes
from scaffe.monitor.log import log
from scaffe.parallel.instances import binding
from scaffe.parallel.instances.crew import Crew
from scaffe.parallel.instances.gradient_sums import BrokenOffError
from scaffe.parallel.instances.places import Place

pytestmark = pytest.mark.mpi_skip
CORES = tuple(sorted(os.sched_getaffinity(0)))
PLACES = [Place(i, 0, (CORES[i % len(CORES)],)) for i in range(4)]


def test_each_thread_is_bound_to_its_cores_and_keeps_them() -> None:
    found: dict[int, tuple[str, set[int]]] = {}
    with Crew(PLACES) as crew:
        for _ in range(2):
            crew.run(lambda i: found.__setitem__(i, (threading.current_thread().name, os.sched_getaffinity(0))))
            assert found == {i: (f"instance {i}", {*PLACES[i].cores}) for i in range(4)}
            found.clear()
    assert os.sched_getaffinity(0) == set(CORES)


def test_the_caller_is_free_while_instances_work() -> None:
    go = threading.Event()
    with Crew(PLACES) as crew:
        assert crew.is_idle
        crew.start(lambda i: go.wait())
        assert not crew.is_idle
        go.set()
        crew.join()
        assert crew.is_idle


def test_a_closed_crew_takes_no_work() -> None:
    crew = Crew(PLACES)
    crew.close()
    with pytest.raises(ScaffeError, match="threads have ended, since the solver is closed; make another"):
        crew.run(lambda i: None)


def test_the_first_error_is_raised_with_its_traceback_and_number() -> None:
    broken = threading.Event()

    def work(instance: int) -> None:
        if instance == 2:
            raise ZeroDivisionError("in layer 'ip1'")
        broken.wait()  # until `failed` is called, by the thread that fails
        raise BrokenOffError

    with Crew(PLACES, lambda error: broken.set()) as crew:
        with pytest.raises(ZeroDivisionError, match="in layer 'ip1'") as caught:
            crew.run(work)
        assert any(entry.name == "work" for entry in caught.traceback)
        assert notes(caught.value) == [f"instance 2 of {len(PLACES)}"]
        crew.run(lambda i: None)  # it can go on


def test_a_signal_while_the_caller_waits_ends_the_work_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    broken, told = threading.Event(), []

    def failed(error: BaseException) -> None:
        told.append(type(error))
        broken.set()

    def interrupted() -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    with Crew(PLACES, failed) as crew:
        monkeypatch.setattr(crew, "_wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            crew.run(lambda i: broken.wait())
        assert crew.is_idle and told == [KeyboardInterrupt]
        crew.run(lambda i: None)


def test_work_that_checks_ends_when_another_instance_fails() -> None:
    started = threading.Semaphore(0)

    def work(instance: int) -> None:
        if instance == 2:
            for _ in range(3):
                started.acquire()
            raise ZeroDivisionError
        started.release()
        while True:
            crew.check()

    with Crew(PLACES) as crew:
        with pytest.raises(ZeroDivisionError):
            crew.run(work)
        crew.run(lambda i: crew.check())  # forgotten


def test_what_instance_0_builds_comes_first_and_alone() -> None:
    begun: list[str] = []

    def make(instance: int) -> str:
        assert instance == 0 or "0" in begun
        begun.append(threading.current_thread().name.removeprefix("instance "))
        return f"net {instance}"

    with Crew(PLACES) as crew:
        assert crew.build(make) == [f"net {i}" for i in range(4)]
    assert begun[0] == "0" and sorted(begun) == list("0123")


def test_what_is_wrong_with_all_is_found_before_the_other_threads_start() -> None:
    """Such as a batch of 24 for 9,999 instances, whose threads would take a minute or more than the memory."""
    before, found = set(threading.enumerate()), []

    def make(instance: int) -> None:
        found.extend(thread.name for thread in set(threading.enumerate()) - before)
        raise ScaffeError("9999 instances for a batch of 24")

    with Crew([Place(i, 0, CORES[:1]) for i in range(9999)]) as crew, pytest.raises(ScaffeError, match="batch of 24"):
        crew.build(make)
    assert found == ["instance 0"]


def test_a_thread_that_cannot_be_started_is_told_and_those_that_run_end() -> None:
    before, usual = set(threading.enumerate()), threading.stack_size()
    with Crew(PLACES) as crew:
        threading.stack_size(1 << 46)  # more than any address space has
        try:
            with pytest.raises(ScaffeError, match=r"instance 0 of 4: this process can start no more threads: .*ulimit"):
                crew.run(lambda i: None)
        finally:
            threading.stack_size(usual)
        crew.run(lambda i: None)  # it can go on
    assert set(threading.enumerate()) <= before


def test_only_instance_0_logs_what_all_would_say(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), Crew(PLACES) as crew:
        crew.run(lambda i: log.info("layer 'x' computes in numpy"))
        crew.run(lambda i: log.warning("of instance %d", i))
    assert sorted(caplog.messages) == ["layer 'x' computes in numpy", *(f"of instance {i}" for i in range(4))]


def test_a_core_that_is_not_there_is_an_error_of_the_work() -> None:
    with Crew([Place(0, 0, (100_000,))]) as crew, pytest.raises(LaunchError, match="can't be bound to cores 100000"):
        crew.run(lambda i: None)


def test_values_that_are_not_finite_raise_no_warnings() -> None:
    found: dict[int, float] = {}
    with Crew(PLACES) as crew:
        crew.run(lambda i: found.__setitem__(i, float(np.ones(1)[0] / np.zeros(1)[0])))
    assert found == dict.fromkeys(range(4), float("inf"))


def test_groups_start_one_delay_apart() -> None:
    begun: dict[int, float] = {}
    with Crew(PLACES, groups=2, delay=0.02) as crew:
        called = monotonic()
        crew.start(lambda i: begun.__setitem__(i, monotonic() - called))
        crew.join()
    assert {i for i, seconds in begun.items() if seconds >= 0.02} >= {1, 3}  # never earlier, whatever the load


def test_only_passes_are_delayed() -> None:
    found: list[int] = []
    with Crew(PLACES, groups=4, delay=3600) as crew:
        crew.run(found.append)
    assert sorted(found) == [0, 1, 2, 3]


def test_close_ends_the_threads() -> None:
    before = set(threading.enumerate())
    Crew(PLACES).close()
    assert set(threading.enumerate()) <= before


def blas_threads() -> list[int]:
    """Return the number of threads of each BLAS library."""
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_numpys_products_are_computed_by_the_instances_threads_alone(monkeypatch) -> None:
    monkeypatch.setattr(binding, "_one_thread", binding._OneBlasThread())  # whatever solvers other tests have left open
    found: dict[int, list[int]] = {}
    with threadpool_limits(2, "blas"):
        with Crew(PLACES[:2]) as crew:
            crew.run(lambda i: found.__setitem__(i, blas_threads()))
        assert set(found[0] + found[1]) == {1}
        assert set(blas_threads()) == {2}
