"""Placement on the NUMA domains of this machine, compared with the kernel's own answers.

`jobs/lab/numa-vm.sh` runs these tests in virtual machines with 2 and with 4 domains. The kernel answers by getcpu (the
core and the domain of a thread), by /proc/self/task (its affinity) and by /proc/self/numa_maps (the domain of memory).
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

import scaffe
from scaffe.compute import Compute
from scaffe.context import Context
from scaffe.net import Net
from scaffe.parallel.instances import crew as crews
from scaffe.parallel.instances.binding import bind
from scaffe.parallel.instances.crew import Crew
from scaffe.parallel.instances.pages import UNTOUCHED, domains_of, where
from scaffe.parallel.instances.places import Place, place
from scaffe.parallel.instances.topology import Topology, parse_ranges, read_topology

Result = TypeVar("Result")
pytestmark = [pytest.mark.mpi_skip, pytest.mark.watchdog(600)]  # an emulated machine is slow
SIZE = 32 << 20  # bytes of an array, more than malloc ever takes from memory that was used before
NEAR = 0.95  # of an instance's memory, at least, lies in its domain

MODEL = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 8 dim: 16 dim: 32 dim: 32 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 64 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 64 weight_filler { type: "xavier" } } }
"""


@pytest.fixture(scope="module")
def topology() -> Topology:
    found = read_topology()
    if len(found.domains) < 2:
        pytest.skip("this machine has 1 NUMA domain; jobs/lab/numa-vm.sh makes machines with 2 and 4")
    return found


def here() -> tuple[int, int]:
    """Return the core on which the calling thread runs, and the core's domain."""
    core, domain = ctypes.c_uint(), ctypes.c_uint()
    assert ctypes.CDLL(None).getcpu(ctypes.byref(core), ctypes.byref(domain)) == 0
    return core.value, domain.value


def in_thread(cores: Sequence[int], work: Callable[[], object]) -> object:
    """Return what `work` returns in a thread of its own that is bound to `cores`."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: (bind(cores), found.append(work())))
    thread.start()
    thread.join()
    return found[0]


@pytest.fixture(scope="module")
def domain_of(topology: Topology) -> dict[int, int]:
    """The domain of each core, as threads on it are told."""
    found = dict(in_thread([core], here) for core in topology.cores)  # type: ignore[arg-type,misc]
    assert len(found) == len(topology.cores)
    return found


def threads_cores() -> dict[int, set[int]]:
    """Return the cores of each thread of this process, by the thread's number."""
    status = {int(task.name): (task / "status").read_text() for task in Path("/proc/self/task").iterdir()}
    lists = {number: text.split("Cpus_allowed_list:")[1].split()[0] for number, text in status.items()}
    return {number: set(parse_ranges(text)) for number, text in lists.items()}


def bytes_by_domain(array: np.ndarray) -> Counter[int]:
    """Return the bytes of an array that is a whole mapping in each domain, by /proc/self/numa_maps."""
    lines = (line.split() for line in Path("/proc/self/numa_maps").read_text().splitlines())
    words = next(line for line in lines if int(line[0], 16) == array.ctypes.data)
    fields = dict(word.split("=") for word in words if "=" in word)
    page = int(fields["kernelpagesize_kB"]) << 10
    return Counter({int(key[1:]): int(count) * page for key, count in fields.items() if key[1:].isdigit()})


def mapped() -> np.ndarray:
    """Return an array that is a mapping of its own and that was never written."""
    return np.frombuffer(mmap.mmap(-1, SIZE), np.uint8)


def near(one: Place, arrays: Sequence[np.ndarray]) -> float:
    """Return the part of the written memory that lies in an instance's domain; print it."""
    print(where(one, arrays))
    found = sum((domains_of(array) or Counter() for array in arrays), Counter())
    del found[UNTOUCHED]
    return found[one.domain] / found.total()


def alone(work: Callable[..., Result], *arguments: object) -> Result:
    """Return what `work` returns in a process of its own.

    In this one malloc gives a new thread the memory of threads that have ended, which may lie in another domain.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(work, *arguments).result()


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


def test_a_net_s_openmp_team_and_memory_stay_in_its_domain(topology: Topology, tmp_path: Path) -> None:
    (path := tmp_path / "net.prototxt").write_text(MODEL)
    places = place("numa", topology)
    teams, parts = alone(nets_in_domains, path, places)
    assert teams == [[set(one.cores)] * (len(one.cores) - 1) for one in places]
    assert min(parts) >= NEAR


def nets_in_domains(path: Path, places: Sequence[Place]) -> tuple[list[list[set[int]]], list[float]]:
    """Run a net in each place. Return the cores of its team's threads, and the parts of its memory in its domain."""
    teams: list[list[set[int]]] = []
    parts: list[float] = []
    turns = [threading.Event() for _ in range(len(places) + 1)]
    turns[0].set()

    def work(instance: int) -> None:
        turns[instance].wait()  # one after the other, so that new threads are this instance's
        one, known = places[instance], threads_cores()
        net = Net(str(path), context=Context(scaffe.TEST, seed=5, compute=Compute(threads=len(one.cores))))
        net.blobs["data"].data[...] = 1
        net.forward()
        teams.append([cores for number, cores in threads_cores().items() if number not in known])
        parts.extend([near(one, [net.packed.data]), near(one, [blob.data for blob in net.blobs.values()])])
        turns[instance + 1].set()

    with Crew(places) as crew:
        crew.run(work)
    return teams, parts
