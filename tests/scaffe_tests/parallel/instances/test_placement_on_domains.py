"""Placement on the NUMA domains of this machine, compared with the kernel's own answers.

`jobs/lab/numa-vm.sh` runs these tests in virtual machines with 2 and with 4 domains.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from domains import NEAR, SIZE, bytes_by_domain, here, in_thread, mapped, near, several_domains, threads_cores

from scaffe.parallel.instances import crew as crews
from scaffe.parallel.instances.binding import bind
from scaffe.parallel.instances.crew import Crew
from scaffe.parallel.instances.pages import domains_of, where
from scaffe.parallel.instances.places import Place, place
from scaffe.parallel.instances.topology import Topology, parse_ranges, read_topology

pytestmark = pytest.mark.mpi_skip


@pytest.fixture(scope="module")
def topology() -> Topology:
    return several_domains()


@pytest.fixture(scope="module")
def domain_of(topology: Topology) -> dict[int, int]:
    """The domain of each core, by getcpu in a thread on it."""
    found = dict(in_thread([core], here) for core in topology.cores)
    assert len(found) == len(topology.cores)
    return found


def test_each_core_lies_in_the_domain_that_the_kernel_gives(topology: Topology, domain_of: dict[int, int]) -> None:
    assert {core: topology.domain_of(core) for core in topology.cores} == domain_of


def test_distances_are_those_of_sys(topology: Topology) -> None:
    nodes = Path("/sys/devices/system/node")
    online = parse_ranges((nodes / "online").read_text())
    for one in topology.domains:
        row = [int(word) for word in (nodes / f"node{one.number}/distance").read_text().split()]
        print(f"domain {one.number}: cores {one.cores}, distances {row}")
        assert [one.distance(other) for other in topology.domains] == [
            row[online.index(other.number)] for other in topology.domains
        ]
        assert one.distance(one) == 10 and all(one.distance(two) == two.distance(one) for two in topology.domains)


def test_numa_is_one_for_each_domain(topology: Topology, domain_of: dict[int, int]) -> None:
    found = {core: one.domain for one in place("numa", topology) for core in one.cores}
    assert found == domain_of
    assert len(place("numa", topology)) == len(set(domain_of.values()))


def test_core_is_one_for_each_core(topology: Topology, domain_of: dict[int, int]) -> None:
    found = place("core", topology)
    assert all(len(one.cores) == 1 for one in found)
    assert {one.cores[0]: one.domain for one in found} == domain_of and len(found) == len(domain_of)


def test_a_number_divides_all_cores(topology: Topology, domain_of: dict[int, int]) -> None:
    for n in range(1, len(domain_of) + 1):
        found = place(str(n), topology)
        assert len(found) == n and sorted(core for one in found for core in one.cores) == sorted(domain_of)
        for one in found:
            domains = Counter(domain_of[core] for core in one.cores)
            assert domains[one.domain] == max(domains.values())
            if n >= len(topology.domains):
                assert set(domains) == {one.domain}


@pytest.mark.parametrize("size", [1, 2])
def test_x_cores_lie_in_one_domain(topology: Topology, domain_of: dict[int, int], size: int) -> None:
    found = place(f"x:{size}", topology)
    in_each = Counter(domain_of.values())
    assert Counter(one.domain for one in found) == +Counter({one: in_each[one] // size for one in in_each})
    assert all([domain_of[core] for core in one.cores] == [one.domain] * size for one in found)
    assert len({core for one in found for core in one.cores}) == len(found) * size


def test_a_mask_may_give_a_part_of_a_domain(topology: Topology, domain_of: dict[int, int]) -> None:
    first = [one.cores[0] for one in topology.domains]
    found = in_thread(first, read_topology)
    assert isinstance(found, Topology) and found.cores == tuple(first)
    assert [one.cores for one in place("numa", found)] == [(core,) for core in first]
    last = topology.domains[-1]
    found = in_thread(last.cores, read_topology)
    assert isinstance(found, Topology) and found.domains == (last,)


def bound(places: Sequence[Place], domain_of: dict[int, int]) -> bool:
    """Return whether each thread of a crew has its place's cores and runs there, while it computes."""
    fits: dict[int, bool] = {}

    def work(instance: int) -> None:
        one, ran = places[instance], set()
        for _ in range(20):
            np.square(np.ones(10_000)).sum()
            ran.add(here())
        fits[instance] = threads_cores()[threading.get_native_id()] == set(one.cores) and ran <= {
            (core, one.domain) for core in one.cores
        }

    with Crew(places) as crew:
        crew.run(work)
    return all(fits[one.instance] for one in places)


@pytest.mark.parametrize("n", ["numa", "core", "x:2"])
def test_each_thread_of_a_crew_stays_on_its_cores(topology: Topology, domain_of: dict[int, int], n: str) -> None:
    assert bound(place(n, topology), domain_of)


def first_touch(places: Sequence[Place]) -> list[np.ndarray]:
    """Return an array for each instance, first written by its thread."""
    arrays = [mapped() for _ in places]
    with Crew(places) as crew:
        crew.run(lambda instance: arrays[instance].fill(1))
    return arrays


@pytest.mark.parametrize("n", ["numa", "core", "x:2"])
def test_memory_lies_where_it_is_first_touched(topology: Topology, n: str) -> None:
    places = place(n, topology)
    for one, array in zip(places, first_touch(places), strict=True):
        assert near(one, [array]) >= NEAR
        assert domains_of(array) == bytes_by_domain(array)
        assert bytes_by_domain(array).total() == SIZE


def test_memory_that_another_domain_s_thread_touched_lies_there(topology: Topology) -> None:
    first, second = place("numa", topology)[:2]
    _, array = first_touch([first, second])
    assert near(first, [array]) <= 1 - NEAR
    assert near(second, [array]) >= NEAR
    assert where(first, [array]).endswith(", 0 % of 0.0336 GB there")


def test_a_wrong_binding_is_noticed(
    topology: Topology, domain_of: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    places = place("numa", topology)
    next_cores = {one.cores: places[(i + 1) % len(places)].cores for i, one in enumerate(places)}
    monkeypatch.setattr(crews, "bind", lambda cores: bind(next_cores[cores]))
    assert not bound(places, domain_of)
    parts = [near(one, [array]) for one, array in zip(places, first_touch(places), strict=True)]
    assert max(parts) <= 1 - NEAR
