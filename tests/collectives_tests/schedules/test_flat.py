from __future__ import annotations

from collectives.model.clusters import KESCH
from collectives.schedules.flat import Flat
from collectives.schedules.registry import find


def test_all_ranks_hang_below_the_root() -> None:
    flat = Flat(4)
    assert [flat.parent(v) for v in range(4)] == [None, 0, 0, 0]
    assert [flat.children(v) for v in range(4)] == [[1, 2, 3], [], [], []]


def test_it_is_for_comparison_alone() -> None:
    flat = find("flat")
    assert flat.tried("reduce", 8) == flat.modelled("reduce") == flat.tabled("reduce", 8) == ()
    assert flat.cost("reduce", "flat", KESCH, 8, 64, 8) is None
