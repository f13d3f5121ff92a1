"""Made-up NUMA domains, and the kernel's own answers about threads, cores and memory on real ones.

- getcpu: the core and the domain of a thread.
- /proc/self/task: the cores to which threads are bound.
- /proc/self/numa_maps: the domain of memory.
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

from scaffe.parallel.instances.binding import bind
from scaffe.parallel.instances.pages import UNTOUCHED, domains_of, where
from scaffe.parallel.instances.places import Place
from scaffe.parallel.instances.topology import Topology, parse_ranges, read_topology

Result = TypeVar("Result")
SIZE = 32 << 20  # bytes of an array, more than malloc ever takes from memory that was used before
NEAR = 0.95  # of an instance's memory, at least, lies in its domain


def made(folder: Path, **domains: tuple[str, str]) -> Path:
    """Make `folder` as /sys/devices/system/node, and return it; by domain its cores and distances."""
    (folder / "online").write_text("0")  # what else lies there is no domain
    (folder / "power").mkdir()
    for name, (cores, distance) in domains.items():
        (folder / name).mkdir()
        (folder / name / "cpulist").write_text(cores + "\n")
        (folder / name / "distance").write_text(distance + "\n")
    return folder


def several_domains() -> Topology:
    """Return this machine's domains; skip the test where there is one."""
    topology = read_topology()
    if len(topology.domains) < 2:
        pytest.skip("this machine has 1 NUMA domain; jobs/lab/numa-vm.sh makes machines with 2 and 4")
    return topology


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
