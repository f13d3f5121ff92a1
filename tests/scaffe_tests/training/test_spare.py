"""Spares that could take no place."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from scaffe.errors import ScaffeError
from scaffe.parallel.run import Run
from scaffe.training.spare import check_spares


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
