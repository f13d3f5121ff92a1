"""Places on made-up domains, from the files of /sys and the affinity mask to the cores of each instance."""

from __future__ import annotations

from pathlib import Path

import pytest
from domains import made

from scaffe.errors import ScaffeError
from scaffe.parallel.instances.places import place, rank_cores
from scaffe.parallel.instances.topology import parse_ranges, read_topology

pytestmark = pytest.mark.mpi_skip

TWO = {"node0": ("0-3", "10 21"), "node1": ("4-7", "21 10")}
SIBLINGS = {"node0": ("0-1,4-5", "10 21"), "node1": ("2-3,6-7", "21 10")}  # 4-7: the second threads of cores 0-3
RING = {
    "node0": ("0-1", "10 21 31 21"),
    "node1": ("2-3", "21 10 21 31"),
    "node2": ("4-5", "31 21 10 21"),
    "node3": ("6-7", "21 31 21 10"),
}
UNEVEN = {"node0": ("0", "10 21 21"), "node1": ("1-2", "21 10 21"), "node2": ("3-7", "21 21 10")}
MEMORY = {"node0": ("0-3", "10 21 17"), "node1": ("4-7", "21 10 28"), "node2": ("", "17 28 10")}  # 2: memory alone
OFFLINE = {"node0": ("0-1,3", "10 21"), "node1": ("4,7", "21 10")}  # 2, 5 and 6 are offline: in no list
NO_CORE_ONLINE = {"node0": ("", "10 21"), "node1": ("4-7", "21 10")}  # cores 0 to 3 are offline


@pytest.mark.parametrize(
    ("domains", "mask", "n", "expected"),
    [
        (TWO, "0-7", "numa", [(0, "0-3"), (1, "4-7")]),
        (TWO, "0-7", "x:4", [(0, "0-3"), (1, "4-7")]),
        (TWO, "2-5", "numa", [(0, "2-3"), (1, "4-5")]),  # half of each
        (TWO, "0-5", "numa", [(0, "0-3"), (1, "4-5")]),  # one, and half of the other
        (TWO, "0-5", "3", [(0, "0-1"), (0, "2-3"), (1, "4-5")]),
        (TWO, "6-7", "numa", [(1, "6-7")]),
        (TWO, "6-7", "core", [(1, "6"), (1, "7")]),
        (TWO, "0,7", "1", [(0, "0,7")]),
        (SIBLINGS, "0-7", "numa", [(0, "0-1,4-5"), (1, "2-3,6-7")]),
        (SIBLINGS, "0-3", "x:2", [(0, "0-1"), (1, "2-3")]),
        (RING, "0-7", "numa", [(0, "0-1"), (1, "2-3"), (2, "4-5"), (3, "6-7")]),
        (RING, "0-7", "2", [(0, "0-3"), (2, "4-7")]),
        (RING, "0-7", "x:2", [(0, "0-1"), (1, "2-3"), (2, "4-5"), (3, "6-7")]),
        (RING, "1-6", "numa", [(0, "1"), (1, "2-3"), (2, "4-5"), (3, "6")]),
        (RING, "0-1,6-7", "numa", [(0, "0-1"), (3, "6-7")]),
        (UNEVEN, "0-7", "numa", [(0, "0"), (1, "1-2"), (2, "3-7")]),
        (UNEVEN, "0-7", "x:2", [(1, "1-2"), (2, "3-4"), (2, "5-6")]),  # cores 0 and 7 stay idle
        (UNEVEN, "0-7", "5", [(0, "0"), (1, "1-2"), (2, "3"), (2, "4-5"), (2, "6-7")]),
        (MEMORY, "0-7", "numa", [(0, "0-3"), (1, "4-7")]),
        (OFFLINE, "0-1,3-4,7", "numa", [(0, "0-1,3"), (1, "4,7")]),
        (OFFLINE, "0-1,3-4,7", "x:2", [(0, "0-1"), (1, "4,7")]),
        (NO_CORE_ONLINE, "4-7", "numa", [(1, "4-7")]),
    ],
)
def test_places_from_sys_and_the_mask(
    tmp_path: Path, domains: dict[str, tuple[str, str]], mask: str, n: str, expected: list[tuple[int, str]]
) -> None:
    topology = read_topology(parse_ranges(mask), made(tmp_path, **domains))
    found = [(one.domain, one.cores) for one in place(n, topology)]
    assert found == [(domain, parse_ranges(cores)) for domain, cores in expected]


def test_distances_of_a_ring(tmp_path: Path) -> None:
    topology = read_topology(parse_ranges("1-6"), made(tmp_path, **RING))
    assert [[one.distance(other) for other in topology.domains] for one in topology.domains] == [
        [10, 21, 31, 21], [21, 10, 21, 31], [31, 21, 10, 21], [21, 31, 21, 10],
    ]  # fmt: skip


def test_distances_of_domains_beside_memory_alone(tmp_path: Path) -> None:
    first, second = read_topology(range(8), made(tmp_path, **MEMORY)).domains
    assert (first.distance(second), second.distance(first)) == (21, 21)


def test_half_a_domain_has_no_instance_of_its_size(tmp_path: Path) -> None:
    topology = read_topology(parse_ranges("2-5"), made(tmp_path, **TWO))
    with pytest.raises(
        ScaffeError, match="^an instance on each 4 cores needs a domain with 4; this rank has 2 in one$"
    ):
        place("x:4", topology)


def test_two_ranks_of_a_node_have_whole_domains_of_a_ring(tmp_path: Path) -> None:
    topology = read_topology(range(8), made(tmp_path, **RING))
    mine = topology.only(rank_cores([range(8)] * 2, 1, topology))
    assert [(one.domain, one.cores) for one in place("numa", mine)] == [(2, (4, 5)), (3, (6, 7))]
