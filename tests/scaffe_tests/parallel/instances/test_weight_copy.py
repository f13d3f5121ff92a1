"""A domain's copy of the parameters: each bucket is fetched once in an iteration, before any instance reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scaffe.parallel.buckets import Bucket
from scaffe.parallel.instances import weight_copy
from scaffe.parallel.instances.weight_copy import WeightCopy

pytestmark = pytest.mark.mpi_skip
BUCKETS = [Bucket(slice(0, 16), (0,), (1,)), Bucket(slice(16, 48), (1,), (1, 3)), Bucket(slice(48, 64), (2,), (3,))]


def made() -> tuple[np.ndarray, np.ndarray, WeightCopy]:
    """Return the updated parameters, their copy, and what fetches them in the first iteration."""
    source, copy = np.arange(1, 65, dtype=np.float32), np.zeros(64, np.float32)
    weights = WeightCopy(source, copy, BUCKETS)
    weights.begin()
    return source, copy, weights


def test_a_layer_fetches_the_buckets_that_it_needs_and_no_others() -> None:
    source, copy, weights = made()
    weights.fetch(0)
    assert not copy.any()
    weights.fetch(1)
    assert copy.tolist() == [*source[:48], *[0.0] * 16]
    weights.fetch(3)
    assert copy.tolist() == source.tolist()


def test_a_bucket_is_fetched_once_in_each_iteration() -> None:
    source, copy, weights = made()
    weights.fetch(3)
    before = copy.tolist()
    source += 100
    weights.fetch(3)
    assert copy.tolist() == before
    weights.begin()
    weights.fetch(3)
    assert copy[16:].tolist() == source[16:].tolist() and not copy[:16].any()


class Held:
    """The lock of a bucket that another instance fetches; who waits for it gets it when that one is done."""

    def __init__(self, weights: WeightCopy, k: int):
        self.weights, self.k = weights, k
        self.others: list[bool] = []  # whether bucket 1 was here when an instance waited

    def acquire(self, blocking: bool) -> bool:
        if not blocking:
            return False
        self.others.append(bool(self.weights.copy[BUCKETS[1].part].all()))
        self.weights._copy(self.k)
        self.weights.source[BUCKETS[self.k].part] = -1  # a second copy would show
        return True

    def release(self) -> None:
        """Do nothing."""


def test_an_instance_fetches_other_buckets_before_it_waits_for_one_that_another_fetches() -> None:
    source, copy, weights = made()
    expected: list[float] = source[:48].tolist()
    held: Any = Held(weights, 0)
    weights._locks[0] = held
    weights.fetch(1)
    assert held.others == [True]
    assert copy[:48].tolist() == expected


def test_a_bucket_counts_as_fetched_once_all_of_it_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    source, _, weights = made()
    copyto, fetched = np.copyto, []

    def spy(target: np.ndarray, given: np.ndarray) -> None:
        fetched.append(weights._fetched[0])
        copyto(target, given)

    monkeypatch.setattr(weight_copy.np, "copyto", spy)
    weights.fetch(1)
    assert fetched[0] == 0 and weights._fetched[0] == 1 and source[0] == 1
