"""Public models of rivals, by hand."""

from __future__ import annotations

import pytest

from scaffe.simulation import find_cluster
from scaffe.simulation.rivals import RIVALS, in_network, lines, ring, tree

UNITS = {"alpha": 0.0, "alpha_in": 0.0, "rate": 1.0, "rate_in": 1e9, "adapters": 1}


def test_bytes_of_one_rank_a_node() -> None:
    links = find_cluster("ndr").with_(devices=1, **UNITS).links
    assert ring(links, 4, 100) == pytest.approx(150)  # 2 (P - 1) / P
    assert tree(links, 4, 100) == pytest.approx(200)  # up and down
    assert in_network(links, 4, 100) == pytest.approx(100)  # once


def test_a_nodes_adapters_share_the_bytes() -> None:
    links = find_cluster("ndr").with_(devices=8, **{**UNITS, "adapters": 4}).links
    assert ring(links, 32, 100) == pytest.approx(2 * 31 / 32 * 25)
    assert tree(links, 32, 100) == pytest.approx(50)
    assert in_network(links, 32, 100) == pytest.approx(25)


def test_latencies() -> None:
    links = find_cluster("ndr").with_(devices=2, **{**UNITS, "alpha": 3.0, "alpha_in": 1.0}).links
    assert ring(links, 8, 0) == pytest.approx(2 * 7 / 8 * (4 * 3 + 4 * 1))
    assert tree(links, 8, 0) == pytest.approx(2 * (2 * 3 + 1))
    assert in_network(links, 8, 0) == pytest.approx(2 * 1 + 2 * 3)


def test_each_rival_has_a_line() -> None:
    assert len([*lines(find_cluster("ndr").links, 16, 1e6)]) == len(RIVALS)
