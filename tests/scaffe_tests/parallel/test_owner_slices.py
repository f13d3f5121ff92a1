"""Owners: which rank has which elements of each bucket."""

from __future__ import annotations

import pytest

from scaffe.parallel.buckets import LINE, Bucket
from scaffe.parallel.owners import SLICES, SPREAD, are_shared, owned, ranges, slice_counts

BUCKETS = [
    Bucket(slice(0, 100), (0,), (0, 1)),
    Bucket(slice(112, 1112), (1,), (2,)),
    Bucket(slice(1112, 1115), (2,), (3,)),
]


@pytest.mark.parametrize("elements", [0, 1, LINE - 1, LINE, LINE + 1, 5 * LINE, 5 * LINE + 3, 1000, 1_000_003])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 64])
def test_slices_are_nearly_equal_and_begin_on_lines(elements: int, size: int) -> None:
    counts = slice_counts(elements, size)
    starts = [sum(counts[:rank]) for rank in range(size)]
    assert len(counts) == size and sum(counts) == elements and min(counts) >= 0
    assert all(start % LINE == 0 or start == elements for start in starts)
    assert max(counts) - min(counts) < 2 * LINE


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("owners", [SPREAD, SLICES])
def test_each_element_belongs_to_one_rank(owners: str, size: int) -> None:
    buckets = owned(BUCKETS, owners, size)
    found = [k for rank in range(size) for part in ranges(buckets, rank) for k in range(part.start, part.stop)]
    assert sorted(found) == [k for bucket in BUCKETS for k in range(bucket.part.start, bucket.part.stop)]
    assert are_shared(buckets) and not are_shared(BUCKETS)
