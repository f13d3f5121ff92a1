"""What ranks say of themselves in a store, and who is missing."""

from __future__ import annotations

from datetime import timedelta

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'scaffe[torch]'")
dist = torch.distributed

from collectives.torch.presence import Presence, named  # noqa: E402

MOMENT = timedelta(milliseconds=1)


def ranks(count: int) -> list[Presence]:
    store = dist.HashStore()
    return [Presence(store, rank, count) for rank in range(count)]


def test_ranks_that_meet_have_each_others_values() -> None:
    first, second = ranks(2)
    with pytest.raises(dist.DistBackendError, match="rank 0 has waited 0.001 s; rank 1 is missing"):
        first.meet("a", MOMENT)
    assert second.meet("b", MOMENT) == first.meet("a", MOMENT) == ["a", "b"]


def test_those_that_wait_in_no_call_as_late_are_missing() -> None:
    first, second, third = ranks(3)
    second.say(2)
    third.say(1)
    assert [first.missing(number) for number in (1, 2, 3)] == [[], [2], [1, 2]]
    assert second.missing(3) == [0, 2]  # never this rank itself
    second.say(1)  # an earlier call says nothing new
    assert first.missing(2) == [2]


def test_those_that_have_left_are_known() -> None:
    first, second, third = ranks(3)
    third.leave()
    assert first.left() == [2] == second.left() and third.left() == []


def test_a_store_whose_host_has_ended_says_nothing() -> None:
    class Ended:
        def check(self, *given: object) -> bool:
            raise RuntimeError("connection reset")

        set = get = check

    lonely = Presence(Ended(), 0, 2)
    lonely.say(1)
    lonely.leave()
    assert lonely.left() == [] and lonely.missing(1) == [1]


def test_names() -> None:
    assert [named(some) for some in ([], [3], [1, 2])] == ["no rank is", "rank 3 is", "ranks 1, 2 are"]
