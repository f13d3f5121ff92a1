"""Spares that could take no place."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from scaffe.errors import RanksLostError, ScaffeError
from scaffe.parallel.run import Run
from scaffe.training.recovery import ranks_left
from scaffe.training.recovery.spares import check_spares


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"spares": 1}, "--spares 1: spares need --on-rank-loss shrink"),
        ({"spares": 3, "on_rank_loss": "shrink"}, "--spares 3: the launch has 3 rank"),
        ({"spares": 4, "on_rank_loss": "shrink"}, "--spares 4: the launch has 3 rank"),
    ],
)
def test_wrong_numbers_of_spares_are_refused(given, told):
    with pytest.raises(ScaffeError, match=told):
        check_spares(SimpleNamespace(size=3, spares=None), Run(**given))


def test_fewer_than_no_spares_are_refused():
    with pytest.raises(ScaffeError, match="spares must be 0 or more, got -1"):
        Run(spares=-1)


def test_a_launch_of_more_ranks_than_spares_is_accepted():
    check_spares(SimpleNamespace(size=3, spares=None), Run(spares=2, on_rank_loss="shrink"))


def launched(ranks: int, *, is_spare=False, lost: tuple[int, ...] = (), waiting: int = 0) -> SimpleNamespace:
    given = {"is_spare": is_spare, "lost": lost, "waiting_spares": waiting}
    return SimpleNamespace(size=ranks, gpu=None, is_cut_off=False, **given)


def test_a_launch_of_fewer_ranks_than_must_be_left_is_refused(monkeypatch):
    monkeypatch.setattr(ranks_left, "can_shrink", lambda: True)
    run = Run(on_rank_loss="shrink", min_ranks=3)
    with pytest.raises(ScaffeError, match=r"--min-ranks 3: the launch has 2 rank\(s\) that train; start more ranks"):
        ranks_left.check_shrink(launched(2), run)
    with pytest.raises(RanksLostError, match="ranks left: 2, fewer than --min-ranks 3"):
        ranks_left.check_shrink(launched(2, lost=(1,)), run)
    ranks_left.check_shrink(launched(2, lost=(1,), waiting=1), run)
    ranks_left.check_shrink(launched(3), run)
    ranks_left.check_shrink(launched(1, is_spare=True), run)
