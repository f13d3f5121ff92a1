"""The mirror of the root's state: who keeps it, and which runs can have one."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from scaffe.errors import ScaffeError
from scaffe.parallel.mirror import Mirror, buddy_of
from scaffe.parallel.run import Run
from scaffe.parallel.world import open_world
from scaffe.training.recovery.ranks_left import check_shrink


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


class OnDevice:
    """An array of a GPU, which NumPy cannot read."""

    def __init__(self, values: list[float]):
        self.values, self.size = values, len(values)

    def __array__(self, *given: object) -> np.ndarray:
        raise TypeError("on a GPU")

    def get(self) -> np.ndarray:
        """Return a copy on the host."""
        return np.float32(self.values)


def test_a_buddy_that_has_all_copies_its_own_values_from_its_gpu() -> None:
    mirror = Mirror(1)
    mirror._world, mirror._buddy, mirror._comm = SimpleNamespace(rank=1, is_root=False), 1, SimpleNamespace()
    mirror._arrays = [OnDevice([1, 2]), OnDevice([3])]
    mirror.feed(0, "about", has_all=True)
    assert mirror.kept is not None and [list(one) for one in mirror.kept.arrays] == [[1, 2], [3]]
