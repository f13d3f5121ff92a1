"""Who reads what: the ranks' parts of each batch, put together, are what one rank would have read."""

from __future__ import annotations

from itertools import chain, cycle, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers import ReaderError, Shard, share

sizes = st.integers(1, 9)
records = st.integers(1, 50)
batches = st.integers(1, 70)
numbers = st.integers(0, 10**6)


@given(st.integers(0, 10**6), sizes)
def test_shares_are_contiguous_and_differ_by_one_at_most(n, size):
    parts = [share(n, rank, size) for rank in range(size)]
    assert [parts[0][0], *(stop for _, stop in parts)] == [*(start for start, _ in parts), n]
    lengths = [stop - start for start, stop in parts]
    assert max(lengths) - min(lengths) <= 1


@given(records, batches, sizes, numbers, numbers)
def test_strong_shards_together_are_the_whole_batch_in_order(n, batch, size, first, t):
    size = min(size, batch)
    parts = [Shard.strong(n, batch, rank, size, first).samples(t) for rank in range(size)]
    assert all(parts)
    assert list(chain(*parts)) == list(Shard.whole(n, batch, first).samples(t))


@given(records, batches, sizes, numbers, numbers)
def test_weak_shards_together_are_a_batch_of_all_ranks(n, batch, size, first, t):
    parts = [Shard.weak(n, batch, rank, size, first) for rank in range(size)]
    assert {part.rows for part in parts} == {batch}
    together = chain(*(part.samples(t) for part in parts))
    assert list(together) == list(Shard.whole(n, batch * size, first).samples(t))


@given(records, batches, sizes, st.integers(0, 40))
def test_batches_walk_the_records_over_and_over(n, batch, size, t):
    size = min(size, batch)
    shards = [Shard.strong(n, batch, rank, size) for rank in range(size)]
    parts = [shard.places(k) for k in range(t) for shard in shards]
    read = [pair for epochs, indices in parts for pair in zip(epochs.tolist(), indices.tolist(), strict=True)]
    walked = islice(((epoch, index) for epoch in range(10**9) for index in range(n)), t * batch)
    assert read == list(walked)
    assert [index for _, index in read] == list(islice(cycle(range(n)), t * batch))


@given(records, batches, st.integers(0, 30), st.integers(0, 30), sizes, sizes)
def test_a_run_resumed_on_other_ranks_goes_on_with_the_next_sample(n, batch, stopped, t, before, after):
    before, after = min(before, batch), min(after, batch)
    first = Shard.strong(n, batch, 0, before).position(stopped)
    resumed = chain(*(Shard.strong(n, batch, rank, after, first).samples(t) for rank in range(after)))
    assert list(resumed) == list(Shard.whole(n, batch).samples(stopped + t))


def test_more_ranks_than_samples_are_refused():
    with pytest.raises(ReaderError, match="batch of 3 can't be divided over 4 ranks: use 3 ranks at most"):
        Shard.strong(10, 3, 0, 4)


@pytest.mark.parametrize("fields", [(0, 4, 0, 4), (9, 4, 2, 2), (9, 4, 0, 5), (9, 4, -1, 2), (9, 4, 0, 4, -1)])
def test_a_shard_that_is_no_part_of_a_batch_is_refused(fields):
    with pytest.raises(ReaderError):
        Shard(*fields)
