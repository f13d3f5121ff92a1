"""Who reads what in any order: every sample once an epoch, the same order for any number of ranks, any stop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from readers import BlockShuffle, ReaderError, Reading, Shard, order

seeds = st.integers(0, 2**63)
records = st.integers(1, 60)
epochs = st.integers(0, 10**9)
batches = st.integers(1, 40)
ranks = st.integers(1, 7)
shuffles = st.one_of(st.sampled_from(["none", "full"]), st.integers(1, 80).map("block:{}".format))


def part(shuffle, seed, count, batch, rank, size, first=0):
    """One rank's shard, in that order."""
    of = Shard.strong(count, batch, rank, size, first)
    return Shard(count, batch, of.start, of.stop, first, order(shuffle, seed, count))


def read(shuffle, seed, count, batch, size, numbers, first=0):
    """The (epoch, record) of each sample that `size` ranks together read in those batches, in the global order."""
    pairs = []
    for number in numbers:
        for rank in range(size):
            pairs += zip(*part(shuffle, seed, count, batch, rank, size, first).places(number), strict=True)
    return [(int(epoch), int(record)) for epoch, record in pairs]


@given(shuffles, seeds, records, batches, ranks, st.integers(0, 5))
@settings(max_examples=50)
def test_ranks_together_read_every_record_once_in_each_epoch(shuffle, seed, count, batch, size, epoch):
    assume(size <= batch)
    first, last = epoch * count // batch, ((epoch + 1) * count - 1) // batch
    pairs = read(shuffle, seed, count, batch, size, range(first, last + 1))
    assert sorted(record for number, record in pairs if number == epoch) == list(range(count))


@given(shuffles, seeds, records, batches, ranks, st.integers(0, 10**6))
@settings(max_examples=40)
def test_the_order_does_not_depend_on_the_number_of_ranks(shuffle, seed, count, batch, size, number):
    assume(size <= batch)
    numbers = range(number, number + 3)
    assert read(shuffle, seed, count, batch, size, numbers) == read(shuffle, seed, count, batch, 1, numbers)


@given(shuffles, seeds, records, batches, ranks, ranks, st.integers(0, 4), st.integers(0, 3))
@settings(max_examples=30)
def test_a_run_that_stops_anywhere_and_goes_on_on_other_ranks_reads_what_one_without_a_stop_does(
    shuffle, seed, count, batch, before, after, stop, more
):
    assume(max(before, after) <= batch)
    position = part(shuffle, seed, count, batch, 0, before).position(stop)
    ours = read(shuffle, seed, count, batch, before, range(stop))
    ours += read(shuffle, seed, count, batch, after, range(more), first=position)
    assert ours == read(shuffle, seed, count, batch, 1, range(stop + more))


@pytest.mark.parametrize("shuffle", ["none", "full", "block:7"])
@pytest.mark.parametrize("rows", [1, 5, 4095, 4097])
def test_batches_put_in_order_together_are_those_put_in_order_alone(shuffle, rows):
    shard = Shard(9999, rows + 2, 1, rows + 1, 7, order(shuffle, 3, 9999))
    for number in (0, 1, 2, 4095, 4096, 5000):
        alone = shard.at(np.array(shard.samples(number)))
        np.testing.assert_array_equal(shard.places(number), alone)


@given(seeds, records, epochs, st.integers(1, 80))
@settings(max_examples=50)
def test_blocks_come_one_after_the_other(seed, count, epoch, size):
    places = np.arange(count)
    blocks = BlockShuffle(seed, count, size)(np.full(count, epoch), places) // size
    assert np.count_nonzero(np.diff(blocks)) == -(-count // size) - 1


def chi_square(orders, kinds):
    """Of how often each order was seen, against all `kinds` being as likely."""
    seen = np.unique(orders, axis=0, return_counts=True)[1]
    assert len(seen) == kinds
    expected = len(orders) / kinds
    return ((seen - expected) ** 2 / expected).sum()


def test_all_orders_of_blocks_are_as_likely_the_shorter_one_included():
    epochs, count = 24000, 5
    shuffle = BlockShuffle(3, count, 2)  # 2 + 2 + 1: 3! orders of blocks, 2! in each of two
    orders = shuffle(np.repeat(np.arange(epochs), count), np.tile(np.arange(count), epochs)).reshape(epochs, count)
    assert chi_square(orders, 24) < 49.7  # the 0.1 % quantile of 23 degrees of freedom


@pytest.mark.parametrize("shuffle", ["full", "block:7"])
def test_epochs_and_seeds_have_orders_of_their_own(shuffle):
    places = np.arange(50)
    orders = [order(shuffle, seed, 50)(np.full(50, epoch), places) for seed in range(3) for epoch in range(3)]
    assert len({tuple(one.tolist()) for one in orders}) == 9


def test_a_block_larger_than_the_set_is_a_shuffle_of_all():
    assert sorted(BlockShuffle(1, 50, 2**31 - 1)(np.zeros(50, int), np.arange(50)).tolist()) == list(range(50))


def test_a_place_among_blocks_of_many_records_is_found_without_the_others():
    count = 10**12
    places = np.array([0, 1, 2, count // 2, count - 1])
    found = BlockShuffle(5, count, 1000)(np.zeros(5, int), places)
    assert len(set(found.tolist())) == 5 and found.min() >= 0 and found.max() < count
    assert len(set((found[:3] // 1000).tolist())) == 1


@pytest.mark.parametrize("text", ["ful", "block", "block:", "block:0", "block:-3", "block:1.5", "block:99999999999"])
def test_an_order_that_is_none_is_refused_with_those_there_are(text):
    with pytest.raises(ReaderError, match=f"unknown shuffle '{text}'; known: none, full, block:N"):
        Reading(shuffle=text)
