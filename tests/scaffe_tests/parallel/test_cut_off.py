from __future__ import annotations

import itertools

import pytest

from scaffe.parallel.cut_off import is_cut_off


@pytest.mark.parametrize(
    ("hosts", "lost", "cut_off"),
    [
        ("aaa", [0, 1], False),  # their ends are known
        ("ab", [1], False),
        ("ab", [0], True),
        ("aabb", [0, 1], True),
        ("aabb", [2, 3], False),
        ("aabb", [0, 2, 3], True),  # one of a was killed, and b is out of reach
        ("aabb", [0, 2], False),
        ("abc", [0], False),
        ("abc", [1, 2], True),
    ],
)
def test_the_smaller_side_is_cut_off(hosts: str, lost: list[int], cut_off: bool) -> None:
    assert is_cut_off(hosts, lost) is cut_off


def test_of_two_sides_one_goes_on() -> None:
    for hosts in itertools.product("abc", repeat=5):
        for side in ({"a"}, {"a", "b"}):
            lost = [rank for rank, host in enumerate(hosts) if host in side]
            rest = [rank for rank in range(5) if rank not in lost]
            if lost and rest:
                assert is_cut_off(hosts, lost) is not is_cut_off(hosts, rest)
