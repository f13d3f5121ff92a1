"""Topology: the NUMA domains of this machine, as Linux describes them, with the cores that this rank may use.

A core is what Linux numbers as a CPU. A container, SLURM or mpirun may give a rank a part of a domain's cores.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from scaffe.errors import LaunchError

NODES = Path("/sys/devices/system/node")


@dataclass(frozen=True)
class Domain:
    """A NUMA domain: its number, the cores that may be used, and its distance to each domain by number (10: itself)."""

    number: int
    cores: tuple[int, ...]
    distances: tuple[tuple[int, int], ...] = ()

    def distance(self, other: Domain) -> int:
        """Return the distance to another domain, as the firmware gives it; 10 to itself."""
        return dict(self.distances).get(other.number, 10 if other.number == self.number else 20)


@dataclass(frozen=True)
class Topology:
    """The NUMA domains that have usable cores, by number."""

    domains: tuple[Domain, ...]

    @property
    def cores(self) -> tuple[int, ...]:
        """All usable cores, those of a domain side by side."""
        return tuple(core for domain in self.domains for core in domain.cores)

    def domain_of(self, core: int) -> int:
        """Return the number of a core's domain. Raise KeyError for a core that may not be used."""
        return {one: domain.number for domain in self.domains for one in domain.cores}[core]

    def only(self, cores: Iterable[int]) -> Topology:
        """Return the same domains with these of their cores, without domains that have none of them."""
        kept = set(cores)
        found = (replace(one, cores=tuple(core for core in one.cores if core in kept)) for one in self.domains)
        return Topology(tuple(domain for domain in found if domain.cores))


def read_topology(cores: Iterable[int] | None = None, nodes: Path = NODES) -> Topology:
    """Return the domains of `cores`, by default the cores of this thread's affinity mask.

    `nodes` is the folder in which Linux describes the domains; without it there is one domain. Memory without cores is
    no domain here. Raise LaunchError for a file that can't be read, and for cores that are in no domain.
    """
    usable = sorted(os.sched_getaffinity(0) if cores is None else set(cores))
    found = tuple(_domains(nodes))
    topology = Topology(found or (Domain(0, tuple(usable)),)).only(usable)
    if lost := set(usable) - set(topology.cores):
        raise LaunchError(f"cores {ranges(sorted(lost))} are in no NUMA domain of {nodes}")
    return topology


def _domains(nodes: Path) -> Iterator[Domain]:
    """Iterate over all domains, by number."""
    folders = {int(path.name[4:]): path for path in nodes.glob("node[0-9]*")}
    for number in sorted(folders):
        folder = folders[number]
        try:
            cores = parse_ranges((folder / "cpulist").read_text())
            distances = [int(word) for word in (folder / "distance").read_text().split()]
            yield Domain(number, cores, tuple(zip(sorted(folders), distances, strict=True)))
        except (OSError, ValueError) as error:
            raise LaunchError(f"NUMA domain {number} can't be read from {folder}: {error}") from None


def parse_ranges(text: str) -> tuple[int, ...]:
    """Return the numbers of a list such as 0-3,8, ascending. Raise ValueError for another text."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


def ranges(numbers: Iterable[int]) -> str:
    """Return ascending numbers as a list of ranges: 0-3,8."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in parts)
