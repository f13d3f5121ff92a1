from __future__ import annotations

from math import ceil, log2

import pytest

from collectives.schedules.algorithms import make_schedule
from collectives.simulation.cost import count


@pytest.mark.parametrize("op", ["reduce", "bcast"])
@pytest.mark.parametrize(("size", "chunks"), [(2, 1), (2, 5), (8, 16), (13, 3)])
def test_a_chain_takes_n_plus_p_minus_2_rounds(op: str, size: int, chunks: int) -> None:
    assert count(make_schedule(op, "chain", size, 10 * chunks, chunk=10)).rounds == chunks + size - 2


@pytest.mark.parametrize("op", ["reduce", "bcast"])
@pytest.mark.parametrize("size", [2, 5, 8, 13, 16, 33])
def test_a_binomial_tree_takes_log_p_rounds(op: str, size: int) -> None:
    assert count(make_schedule(op, "binomial", size, 10, chunk=10)).rounds == ceil(log2(size))


@pytest.mark.parametrize("size", [2, 4, 16])
def test_halving_takes_twice_log_p_rounds_and_moves_the_least(size: int) -> None:
    cost = count(make_schedule("allreduce", "halving", size, 160, chunk=160))
    assert cost.rounds == 2 * log2(size)
    assert all(cost.sent(r)[1] == cost.received(r)[1] == 2 * 160 * (size - 1) / size for r in range(size))


@pytest.mark.parametrize("size", [2, 5, 8])
def test_a_ring_takes_twice_p_minus_1_rounds_and_moves_the_least(size: int) -> None:
    cost = count(make_schedule("allreduce", "ring", size, 80, chunk=80))
    assert cost.rounds == 2 * (size - 1) and set(cost.messages) == {(r, (r + 1) % size) for r in range(size)}
    assert all(cost.sent(r) == cost.received(r) == (2 * (size - 1), 2 * 80 * (size - 1) / size) for r in range(size))


@pytest.mark.parametrize("size", [15, 16])
def test_in_two_trees_no_rank_sends_or_receives_more_than_once_the_data(size: int) -> None:
    cost = count(make_schedule("reduce", "two-tree", size, 320, chunk=4))
    assert all(cost.sent(rank) == (80, 320) and cost.received(rank)[1] <= 320 for rank in range(1, size))
    assert cost.received(0) == (80, 320) and cost.sent(0) == (0, 0)
    binomial = count(make_schedule("reduce", "binomial", size, 320, chunk=4))
    assert 80 <= cost.rounds < 80 + 4 * log2(size) * log2(size) < binomial.rounds


def test_reduces_send_each_ranks_data_once() -> None:
    cost = count(make_schedule("reduce", "cb-4", 10, 30, chunk=7, root=3))
    assert len(cost.messages) == 9 and set(cost.elements.values()) == {30} and set(cost.messages.values()) == {5}
    assert str(cost).endswith("45 messages, 270 elements, at most 30 over one link")
