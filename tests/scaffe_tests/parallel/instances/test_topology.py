"""Domains as made-up folders of /sys describe them, and as this machine does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from domains import made

from scaffe.errors import LaunchError
from scaffe.parallel.instances.topology import Domain, parse_ranges, ranges, read_topology

pytestmark = pytest.mark.mpi_skip


def test_two_domains_with_threads_of_their_cores(tmp_path: Path) -> None:
    nodes = made(tmp_path, node0=("0-1,4-5", "10 21"), node1=("2-3,6-7", "21 10"))
    topology = read_topology(range(8), nodes)
    first, second = topology.domains
    assert (first.cores, second.cores) == ((0, 1, 4, 5), (2, 3, 6, 7))
    assert topology.cores == (0, 1, 4, 5, 2, 3, 6, 7)
    assert (first.distance(second), first.distance(first)) == (21, 10)
    assert [topology.domain_of(core) for core in (0, 2, 7)] == [0, 1, 1]
    with pytest.raises(KeyError):
        topology.domain_of(8)


def test_domains_are_in_the_order_of_their_numbers_and_can_have_gaps(tmp_path: Path) -> None:
    nodes = made(tmp_path, node0=("0", "10 20 30"), node10=("2", "30 20 10"), node2=("1", "20 10 20"))
    first, second, third = read_topology(range(3), nodes).domains
    assert [one.number for one in (first, second, third)] == [0, 2, 10]
    assert (first.distance(second), first.distance(third), third.distance(first)) == (20, 30, 30)


def test_memory_without_cores_is_no_domain(tmp_path: Path) -> None:
    nodes = made(tmp_path, node0=("0-3", "10 31"), node1=("", "31 10"))  # such as fast memory of Knights Landing
    assert [one.number for one in read_topology(range(4), nodes).domains] == [0]


def test_a_container_may_give_half_a_domain(tmp_path: Path) -> None:
    nodes = made(tmp_path, node0=("0-27", "10 21"), node1=("28-55", "21 10"))
    topology = read_topology([14, 20, 40, 41], nodes)
    assert [(one.number, one.cores) for one in topology.domains] == [(0, (14, 20)), (1, (40, 41))]
    assert [one.number for one in read_topology([40, 41], nodes).domains] == [1]
    assert [one.cores for one in topology.only([41, 14]).domains] == [(14,), (41,)]


def test_without_the_folder_there_is_one_domain(tmp_path: Path) -> None:
    assert read_topology([3, 1], tmp_path / "none").domains == (Domain(0, (1, 3)),)


def test_a_core_in_no_domain_is_an_error(tmp_path: Path) -> None:
    nodes = made(tmp_path, node0=("0-1", "10"))
    with pytest.raises(LaunchError, match=f"^cores 2-3 are in no NUMA domain of {nodes}$"):
        read_topology(range(4), nodes)


@pytest.mark.parametrize(("cores", "distance"), [("zero", "10"), ("0", "10 21"), ("0", "")])
def test_a_file_that_makes_no_sense_is_an_error(tmp_path: Path, cores: str, distance: str) -> None:
    with pytest.raises(LaunchError, match=f"^NUMA domain 0 can't be read from {tmp_path}/node0: "):
        read_topology([0], made(tmp_path, node0=(cores, distance)))


def test_a_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    (made(tmp_path, node0=("0", "10")) / "node0/distance").unlink()
    with pytest.raises(LaunchError, match="No such file"):
        read_topology([0], tmp_path)


def test_this_machine() -> None:
    topology = read_topology()
    assert sorted(topology.cores) == sorted(os.sched_getaffinity(0))
    assert all(one.distance(one) == 10 for one in topology.domains)


@pytest.mark.parametrize(
    ("text", "numbers"), [("", ()), ("0", (0,)), ("0-3,8", (0, 1, 2, 3, 8)), ("8,0-1,10-11", (0, 1, 8, 10, 11))]
)
def test_lists_of_ranges(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_ranges(text + "\n") == numbers
    assert parse_ranges(ranges(numbers)) == numbers


def test_numbers_side_by_side_are_one_range() -> None:
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
