from __future__ import annotations

from dataclasses import replace

import pytest

from collectives.check import check
from collectives.group import Group
from collectives.model.clusters import TAIHULIGHT, Cluster
from collectives.schedules.algorithms import make_schedule, order_for
from collectives.schedules.exchange import SHARE
from collectives.schedules.halving import blocks_of_rounds, cost, halving
from collectives.schedules.registry import find
from collectives.schedules.schedule import StepKind
from tests.support.equations import allreduce_time, new_allgather_time, new_reduce_scatter_time


@pytest.mark.parametrize("power", [1, 2, 4, 8, 64])
def test_halving_pairs_ranks_that_give_what_the_other_keeps(power: int) -> None:
    every = [list(halving(v, power)) for v in range(power)]
    for v, rounds in enumerate(every):
        assert len(rounds) == power.bit_length() - 1
        for i, (divides, (give,), (keep,)) in enumerate(rounds):
            assert divides and every[keep.peer][i].sends == [(v, keep.blocks, 0, 1)]
            assert give.peer == keep.peer == v ^ (power >> (i + 1))
            assert keep.blocks[1] - keep.blocks[0] == power >> (i + 1)
        assert not rounds or rounds[-1].receives[0].blocks == (v, v + 1)


@pytest.mark.parametrize("parts", [1, 3])
def test_each_transfer_has_both_ends(parts: int) -> None:
    for size in range(1, 70):
        every = [list(halving(v, size, parts)) for v in range(size)]
        sent = sorted((v, one.peer, *one[1:]) for v, rounds in enumerate(every) for r in rounds for one in r.sends)
        got = sorted((one.peer, v, *one[1:]) for v, rounds in enumerate(every) for r in rounds for one in r.receives)
        assert sent == got


def test_halving_over_any_number_of_ranks_takes_about_as_long_as_over_the_next_power_of_two() -> None:
    for size in range(2, 1100):
        power = 1 << (size - 1).bit_length()
        (blocks, rounds), (most, least) = cost(size), cost(power)
        assert blocks / size <= 1.15 * most / power and rounds <= least + 1 and least == power.bit_length() - 1
        assert sum(blocks_of_rounds(size)) == blocks


def test_halving_sends_several_pieces_before_it_waits_for_one() -> None:
    steps = make_schedule("allreduce", "halving", 2, 64, chunk=1, depth=16).rank(0)
    assert [step.kind for step in steps[:9]] == [*[StepKind.SEND] * 8, StepKind.RECV_ADD]


@pytest.mark.parametrize("what", ["allreduce", "allgather"])
@pytest.mark.parametrize("size", [2, 5, 6, 7, 8, 11])
def test_blockwise_all_ranks_get_and_pass_on_a_sum_in_the_same_piece(size: int, what: str) -> None:
    elements, pieces = 3 * size + 1, set()
    schedule = make_schedule(what, "halving", size, elements, chunk=2, blockwise=True)
    check(schedule)
    for rank in range(size):
        pieces |= {(step.start, step.stop) for step in schedule.rank(rank) if step.tag == SHARE}
    assert sum(stop - start for start, stop in pieces) == elements


def test_ranks_are_numbered_from_the_supernodes_in_turn() -> None:
    group = Group.uniform(8, nodes_per_supernode=4)
    assert order_for("halving", group) == [0, 4, 1, 5, 2, 6, 3, 7] and order_for("ring", group) == [*range(8)]


@pytest.mark.parametrize(("p", "q"), [(64, 16), (16, 16), (1024, 256), (16, 64)])
def test_the_closed_form_is_swcaffes_equations_of_ranks_from_the_supernodes_in_turn(p: int, q: int) -> None:
    n, cluster = 1 << 22, replace(TAIHULIGHT, nodes_per_supernode=q)
    links = {"alpha": cluster.alpha, "beta1": cluster.beta, "beta2": 4 * cluster.beta}
    terms = {"p": p, "q": min(p, q), "n": n, "gamma": cluster.gamma, **links}
    expected = allreduce_time(new_reduce_scatter_time, new_allgather_time, **terms)
    assert seconds(cluster, p, n) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("nics", [1, 2, 4])
def test_the_closed_form_has_ranks_of_a_node_share_its_adapters(nics: int) -> None:
    """Of 8 ranks on two nodes each exchanges four eighths with the other node, then three with its own."""
    n, links = 800, Cluster("two", 2, 4, alpha_in=1, beta_in=0.1, alpha=10, beta=1, gamma=0, nics=nics)
    assert seconds(links, 8, n) == pytest.approx(2 * (10 + 400 * 4 / nics + 2 * 1 + 300 * 0.1))


def seconds(links: Cluster, ranks: int, n: int) -> float:
    found = find("halving").cost("allreduce", "halving", links, ranks, n, n)
    assert found is not None
    return found.seconds
