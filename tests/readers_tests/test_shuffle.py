"""Orders that need no memory: every record once in each epoch, no two epochs alike, whoever reads."""

from __future__ import annotations

from math import factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers import FileShuffle, Shard, Shuffle
from readers.keyed import key, permute

seeds = st.integers(-(2**63), 2**64)
counts = st.integers(1, 300)


def order(shuffle, epoch, count):
    return shuffle(np.full(count, epoch), np.arange(count)).tolist()


@given(seeds, st.integers(0, 10**9), counts)
def test_every_record_comes_once_in_an_epoch(seed, epoch, count):
    assert sorted(order(Shuffle(seed, count), epoch, count)) == list(range(count))


@given(seeds, st.integers(0, 10**9), st.lists(st.integers(0, 40), min_size=1, max_size=9).filter(any))
def test_files_come_one_after_the_other_each_row_once(seed, epoch, rows):
    total = sum(rows)
    records = order(FileShuffle(seed, rows), epoch, total)
    assert sorted(records) == list(range(total))
    files = np.repeat(np.arange(len(rows)), rows)[records]
    assert np.count_nonzero(np.diff(files)) == np.count_nonzero(rows) - 1


def test_a_place_in_an_order_of_many_records_is_found_without_the_others():
    count = 10**12
    places = np.array([0, 1, 2, count // 2, count - 1])
    records = permute(key(5, 0), places, count)
    assert len(set(records.tolist())) == 5 and records.min() >= 0 and records.max() < count
    assert abs(np.diff(records.astype(float))).min() > 1


@pytest.mark.parametrize(("count", "limit"), [(2, 10.8), (4, 49.7), (5, 173.6)])  # 0.1 % quantiles
def test_all_orders_of_a_few_records_are_as_likely(count, limit):
    epochs = 24000
    shuffle = Shuffle(3, count)
    orders = shuffle(np.repeat(np.arange(epochs), count), np.tile(np.arange(count), epochs)).reshape(epochs, count)
    seen = np.unique(orders, axis=0, return_counts=True)[1]
    expected = epochs / factorial(count)
    assert len(seen) == factorial(count)
    assert ((seen - expected) ** 2 / expected).sum() < limit  # chi square of count! - 1 degrees of freedom


def test_neighbours_are_torn_apart():
    records = np.array(order(Shuffle(1, 100000), 0, 100000))
    steps = np.abs(np.diff(records))
    assert abs(steps.mean() / (100000 / 3) - 1) < 0.02
    assert np.count_nonzero(steps == 1) < 20  # 2 are expected


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = [order(Shuffle(seed, 50), epoch, 50) for seed in range(3) for epoch in range(3)]
    orders += [order(FileShuffle(seed, [20, 30]), epoch, 50) for seed in range(3) for epoch in range(3)]
    assert len(set(map(tuple, orders))) == 18


@settings(max_examples=30)
@given(seeds, counts, st.integers(1, 70), st.integers(1, 9), st.integers(0, 10**4))
def test_ranks_together_read_the_order_of_one(seed, records, batch, size, t):
    size, shuffle = min(size, batch), Shuffle(seed, records)
    shards = [Shard.strong(records, batch, rank, size) for rank in range(size)]
    parts = [Shard(records, batch, part.start, part.stop, order=shuffle).places(t) for part in shards]
    epochs, indices = Shard(records, batch, 0, batch, order=shuffle).places(t)
    assert np.concatenate([part[0] for part in parts]).tolist() == epochs.tolist()
    assert np.concatenate([part[1] for part in parts]).tolist() == indices.tolist()
