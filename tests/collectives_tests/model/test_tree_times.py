"""Which trees crowd a link, by hand, and queues of jobs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collectives.group import Group
from collectives.model.clusters import Cluster
from collectives.model.tree_times import Service, TreeTimes, crowded
from collectives.schedules.algorithms import make_schedule
from collectives.schedules.tree_steps import TreeSteps

SLOW = Cluster("slow", 8, ranks_per_node=2, alpha_in=0, beta_in=1, alpha=0, beta=1, gamma=0)
WIDE = replace(SLOW, ranks_per_node=1, nodes_per_supernode=4)


def plan(ranks: int, name: str = "flat", op: str = "reduce") -> TreeSteps:
    steps = make_schedule(op, name, ranks, 8, chunk=8).steps
    assert isinstance(steps, TreeSteps)
    return steps


def test_a_link_is_crowded_by_more_senders_than_it_serves() -> None:
    """In a flat tree each rank sends to the root, so all but the root's share nothing but their own links."""
    pair = replace(SLOW, ranks_per_node=2)
    assert crowded(plan(4), pair, pair.group(4))  # ranks 2 and 3 leave one node
    assert not crowded(plan(4), replace(pair, nics=2), pair.group(4))
    wide = replace(WIDE, oversubscription=4)
    assert crowded(plan(8), wide, wide.group(8))  # four nodes leave a supernode, whose uplink serves one
    assert not crowded(plan(8), replace(wide, oversubscription=1), wide.group(8))


def test_a_link_is_crowded_by_more_receivers_than_it_serves() -> None:
    """Two ranks of a node each receive from a node of their own."""
    group = Group((0, 0, 1, 2), (0, 0, 0, 0))
    binomial = plan(4, "binomial")  # 1 -> 0, 3 -> 2, 2 -> 0: 0's node receives from 2 alone
    assert not crowded(binomial, replace(SLOW, ranks_per_node=1), group)
    across = Group((0, 1, 0, 2), (0, 0, 0, 0))  # 0 receives from 1, and 2, of the same node, from 3
    assert crowded(binomial, SLOW, across)


def test_a_job_begins_when_it_is_ready_and_the_one_before_has_ended() -> None:
    assert Service(np.array([2.0, 3.0, 1.0])).ends(np.array([0.0, 1.0, 9.0])).tolist() == [2, 5, 10]


def test_a_rank_takes_its_children_s_messages_one_after_the_other_and_adds_meanwhile() -> None:
    """Two leaves below a root, 8 bytes in one chunk: two messages of 80 s each, then the last addition, of 40 s."""
    links = replace(SLOW, ranks_per_node=1, beta=10, gamma=5, nics=2)
    assert TreeTimes(plan(3), links, links.group(3), 1).finish() == 80 + 80 + 40
    assert TreeTimes(plan(1), links, links.group(1), 1).finish() == 0


def test_a_broadcast_reaches_one_child_after_the_other_and_begins_where_a_sum_is_complete() -> None:
    links = replace(SLOW, ranks_per_node=1, beta=10, gamma=5, nics=2)
    times = {op: TreeTimes(plan(3, op=op), links, links.group(3), 1).finish() for op in ("bcast", "allreduce")}
    assert times == {"bcast": 80 + 80, "allreduce": 200 + 160}
    assert TreeTimes(plan(4, "chain", "bcast"), links, links.group(4), 1).finish() == 3 * 80
