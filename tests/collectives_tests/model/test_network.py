"""Messages on shared links take turns or shares, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collectives.group import Group
from collectives.model.clusters import Cluster
from collectives.model.network import LinkNetwork
from collectives.simulation.events import Message

SLOW = Cluster("slow", 8, ranks_per_node=2, alpha_in=0, beta_in=1, alpha=0, beta=1, gamma=0)
WIDE = replace(SLOW, ranks_per_node=1, nodes_per_supernode=4)


def sent(network: LinkNetwork, now: float, *ends: tuple[int, int]) -> list[float | None]:
    """Send 8 elements of a byte between ranks; return when each message arrives, None for one that must wait."""
    messages = [Message(source, dest, 8) for source, dest in ends]
    network.transfer(messages, now)
    return [message.done for message in messages]


def network(cluster: Cluster, ranks: int = 8) -> LinkNetwork:
    return LinkNetwork(cluster, cluster.group(ranks), 1)


def test_a_message_shares_an_adapter_with_those_under_way_until_they_have_arrived() -> None:
    """Ranks 0 and 1 leave one node; the share of a message is that at its start."""
    links = network(SLOW)
    assert sent(links, 0, (0, 2)) == [8]
    assert sent(links, 4, (1, 4)) == [4 + 16]
    assert sent(links, 8, (0, 6)) == [8 + 16]
    assert sent(links, 30, (0, 6)) == [30 + 8]
    assert sent(network(replace(SLOW, nics=2)), 0, (0, 2), (1, 4)) == [8, 8]


def test_a_rank_sends_one_message_at_a_time_and_receives_one() -> None:
    links = network(replace(SLOW, nics=2))
    assert sent(links, 0, (0, 2), (0, 4), (6, 2)) == [8, None, None]


@pytest.mark.parametrize(
    ("nics", "over", "together", "times"),
    [(1, 4, 1, 1), (1, 4, 2, 2), (1, 1, 4, 1), (2, 4, 2, 1), (2, 4, 4, 2)],
)
def test_supernodes_have_uplinks_and_downlinks(nics: int, over: float, together: int, times: int) -> None:
    """Of four nodes, one in `over` sends out, or receives from outside, at full rate with each of its adapters."""
    cluster = replace(WIDE, nics=nics, oversubscription=over)
    out = [(i, 4 + i) for i in range(together)]
    assert sent(network(cluster), 0, *out) == [8 * times] * together
    several = replace(cluster, nodes_per_supernode=None)
    places = Group(tuple(range(8)), (0, 1, 2, 3, 4, 4, 4, 4))  # only the receivers share a supernode
    assert sent(LinkNetwork(cluster, places, 1), 0, *out) == [8 * times] * together
    assert sent(network(several), 0, *out) == [8] * together
