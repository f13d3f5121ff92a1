from __future__ import annotations

from dataclasses import replace

import pytest

from collectives.errors import CollectiveError
from collectives.model.clusters import CLUSTERS, KESCH, NVLINK_NDR, find_cluster


def test_a_message_stays_in_the_node_of_which_no_rank_is_outside() -> None:
    assert KESCH.between(16) == (KESCH.alpha_in, KESCH.beta_in)
    assert KESCH.between(17) == (KESCH.alpha, KESCH.beta)


@pytest.mark.parametrize(("senders", "nics", "times"), [(1, 8, 1), (8, 8, 1), (16, 8, 2), (4, 1, 4)])
def test_ranks_of_a_node_share_its_adapters(senders: int, nics: int, times: float) -> None:
    nodes = replace(NVLINK_NDR, nics=nics).of_nodes(senders)
    assert (nodes.ranks_per_node, nodes.nics, nodes.beta) == (1, 1, times * NVLINK_NDR.beta)


def test_ranks_fill_node_after_node_and_supernode_after_supernode() -> None:
    group = NVLINK_NDR.group(8 * 33)
    assert group.shape == (33, 8) and (group.supernodes[8 * 32 - 1], group.supernodes[8 * 32]) == (0, 1)


def test_clusters_have_their_names() -> None:
    assert all(find_cluster(name).name == name for name in CLUSTERS)
    with pytest.raises(CollectiveError, match="unknown cluster 'x'; known are kesch, cluster-b"):
        find_cluster("x")
