"""A collective as c10d's Work, and the thread that runs a group's."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'scaffe[torch]'")

from collectives.torch import work as works  # noqa: E402
from collectives.torch.work import CollectiveWork, Followers, GroupThread  # noqa: E402


class Group:
    """A group that says of each wait that it is too late."""

    broken: Exception | None = None

    def is_late(self, number: int, waits_until: float, what: str) -> Exception | None:
        return RuntimeError(f"{what} {number} is late")

    def breaks(self, error: Exception) -> Exception:
        self.broken = error
        return error


@pytest.fixture
def group() -> Group:
    return Group()


def work(group: Group, is_in_caller: bool = False) -> CollectiveWork:
    return CollectiveWork(group, "all_reduce", 7, [torch.ones(1)], 0.001, is_in_caller)


def test_a_work_that_has_ended_well_has_its_results(group: Group) -> None:
    one = work(group)
    early = one.get_future()
    assert not one.is_completed() and not one.is_success() and not early.done()
    assert one.attempt(lambda same: None) is None
    one.end()
    assert one.wait() and one.is_completed() and one.is_success() and one.exception() is None
    assert torch.equal(early.wait()[0], one.result()[0]) and one.get_future() is early
    assert work(group, is_in_caller=True).is_completed()


def test_a_failure_is_raised_by_each_wait(group: Group) -> None:
    def fail(same: CollectiveWork) -> None:
        raise KeyError("bad")

    for one in (work(group), work(group, is_in_caller=True)):
        one.end(one.attempt(fail))
        for wait in (one.wait, one.synchronize):
            with pytest.raises(KeyError, match="bad"):
                wait()
        assert one.is_completed() and not one.is_success() and isinstance(one.exception(), KeyError)
        with pytest.raises(RuntimeError, match="bad"):
            one.get_future().wait()


def test_only_a_wait_without_a_time_of_its_own_breaks_the_group(group: Group) -> None:
    one = work(group)
    with pytest.raises(RuntimeError, match="all_reduce 7 is late"):
        one.wait(timedelta(milliseconds=1))
    assert group.broken is None
    with pytest.raises(RuntimeError, match="all_reduce 7 is late"):
        one.wait()
    assert group.broken is not None


def test_jobs_do_not_record_gradients(group: Group) -> None:
    assert work(group).attempt(lambda same: torch.is_grad_enabled() and 1 / 0) is None


def test_a_groups_thread_runs_its_works_in_order_and_is_idle_before_the_last_shows_its_end(group: Group) -> None:
    thread, seen, may_go_on = GroupThread("a test's"), [], threading.Event()
    assert thread.is_idle and thread.end(0)
    many = [work(group) for _ in range(3)]
    for k, one in enumerate(many):
        one.seconds = 60
        thread.put(one, lambda same, k=k: (may_go_on.wait(60), seen.append((k, thread._count))))  # type: ignore[misc]
    assert not thread.is_idle
    may_go_on.set()
    assert many[2].wait() and thread.is_idle and seen == [(0, 3), (1, 2), (2, 1)]
    assert thread.end(60) and not thread._thread.is_alive()  # type: ignore[union-attr]


def test_followers_that_wait_keep_no_other() -> None:
    followers, first, second = Followers(), threading.Event(), threading.Event()
    followers.call(lambda: None)
    while not followers._idle:  # that thread waits for more
        pass
    followers.call(lambda: (second.wait(60), first.set()))
    followers.call(second.set)
    assert first.wait(60)


def test_a_wait_looks_at_its_group_each_second(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "SECOND", 0.0)
    one, asked = work(group), []

    def is_late(number: int, waits_until: float, what: str) -> None:
        asked.append(number)
        if len(asked) == 3:
            one.end()

    group.is_late = is_late  # type: ignore[method-assign,assignment]
    assert one.wait(timedelta(seconds=60)) and asked == [7, 7, 7]
