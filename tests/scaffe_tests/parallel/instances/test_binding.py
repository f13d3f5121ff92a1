from __future__ import annotations

import os
from threading import Thread

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from scaffe.errors import LaunchError
from scaffe.parallel.instances import binding
from scaffe.parallel.instances.binding import bind, bind_blas

pytestmark = pytest.mark.mpi_skip


def test_a_thread_is_bound_alone_and_the_threads_that_it_starts_with_it() -> None:
    before, last = os.sched_getaffinity(0), max(os.sched_getaffinity(0))
    found: dict[str, set[int]] = {}

    def work() -> None:
        bind([last])
        found["itself"] = os.sched_getaffinity(0)
        child = Thread(target=lambda: found.update(child=os.sched_getaffinity(0)))
        child.start()
        child.join()

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert found == {"itself": {last}, "child": {last}}
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize("cores", [[], [100_000]])
def test_cores_that_the_kernel_refuses(cores: list[int]) -> None:
    before = os.sched_getaffinity(0)
    with pytest.raises(LaunchError, match="^a thread can't be bound to cores "):
        bind(cores)
    assert os.sched_getaffinity(0) == before


def test_blas_has_one_thread_until_the_last_crew_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "_one_thread", binding._OneBlasThread())

    def threads() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    with threadpool_limits(2, "blas"):
        before = threads()
        first, second = bind_blas(), bind_blas()
        first()
        first()
        assert threads() == {1}
        second()
        assert threads() == before
