"""The mirror of the root's state: who keeps it, and which runs can have one."""

from __future__ import annotations

import pytest

from scaffe.errors import ScaffeError
from scaffe.parallel.mirror import buddy_of
from scaffe.parallel.run import Run
from scaffe.parallel.world import open_world
from scaffe.training.recovering_solver import check_shrink


@pytest.mark.parametrize(
    ("hosts", "buddy"),
    [("a", None), ("aaa", 1), ("aabb", 2), ("abab", 1), ("aaab", 3), ("abbb", 1)],
)
def test_the_buddy_is_the_first_rank_of_another_node_or_else_the_next(hosts: str, buddy: int | None) -> None:
    assert buddy_of(hosts, 0) == buddy


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (Run(mirror_every=5), "--mirror-every 5 needs --on-rank-loss shrink"),
        (
            Run(mirror_every=5, on_rank_loss="shrink", sync="allreduce"),
            "--mirror-every 5 with --sync allreduce: every rank has the state; leave --mirror-every out",
        ),
    ],
)
def test_a_mirror_that_would_serve_nothing_is_refused(run: Run, told: str) -> None:
    with pytest.raises(ScaffeError, match=told):
        check_shrink(open_world(), run)
