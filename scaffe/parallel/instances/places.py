"""Place: where an instance runs. The ranks of a node divide its cores, and the instances of a rank the rank's cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from readers import share
from scaffe.errors import ScaffeError
from scaffe.parallel.instances.topology import Domain, Topology, ranges


@dataclass(frozen=True)
class Place:
    """The cores of an instance, and the NUMA domain that has most of them."""

    instance: int
    domain: int
    cores: tuple[int, ...]

    def __str__(self) -> str:
        noun = "core" if len(self.cores) == 1 else "cores"
        return f"instance {self.instance}: domain {self.domain}, {noun} {ranges(sorted(self.cores))}"


def rank_cores(masks: Sequence[Sequence[int]], rank: int, topology: Topology) -> tuple[int, ...]:
    """Return the cores of one of a node's ranks; `masks` holds the affinity mask of each, by rank on the node.

    Ranks with the same mask divide its cores as instances do. More of them than cores share cores.
    """
    alike = [other for other, mask in enumerate(masks) if set(mask) == set(masks[rank])]
    places = place(str(len(alike)), topology.only(masks[rank]), oversubscribe=True)
    return places[alike.index(rank)].cores


def count(n: str, topology: Topology, oversubscribe: bool = False) -> int:
    """Return the number of instances that `n` asks for over the rank's cores.

    `n` is a number, "numa" for one in each domain, "core" for one on each core, or "x:C" for one on each C cores of a
    domain. Raise ScaffeError for more instances than cores unless `oversubscribe`, and where no domain has C cores.
    """
    cores = len(topology.cores)
    if n == "numa":
        return len(topology.domains)
    if n == "core":
        return cores
    if n.startswith("x:"):
        return _of_size(int(n[2:]), topology, oversubscribe)
    if int(n) > cores and not oversubscribe:
        raise ScaffeError(
            f"{n} instances need {n} cores, and this rank has {cores} (cores {ranges(sorted(topology.cores))}); "
            f"ask for at most {cores}, or share cores with --oversubscribe"
        )
    return int(n)


def _of_size(size: int, topology: Topology, oversubscribe: bool) -> int:
    found = sum(len(domain.cores) // size for domain in topology.domains)
    if found or oversubscribe:
        return max(1, found)
    most = max(len(domain.cores) for domain in topology.domains)
    raise ScaffeError(f"an instance on each {size} cores needs a domain with {size}; this rank has {most} in one")


def candidates(topology: Topology) -> dict[str, int]:
    """Return what "auto" tries, each with its number of instances: one, one for each domain, one for each core."""
    return {n: count(n, topology) for n in ("1", "numa", "core")}


def place(n: str, topology: Topology, oversubscribe: bool = False) -> list[Place]:
    """Return the places of the instances that `n` asks for, numbered domain by domain. Raise ScaffeError as `count`.

    - With "x:C" each has C cores of one domain; cores left over stay idle.
    - At least as many instances as domains: each lies in one domain, and the domains' cores are divided over them.
    - Fewer: an instance has all cores of neighbouring domains.
    """
    total = count(n, topology, oversubscribe)
    if n.startswith("x:"):
        size = int(n[2:])
        runs = [(one, one.cores[i : i + size]) for one in topology.domains for i in _starts(one, size)]
        runs = runs or [_joined(topology.domains)]
    elif total < len(topology.domains):
        runs = [_joined(topology.domains[slice(*share(len(topology.domains), i, total))]) for i in range(total)]
    else:
        shares = zip(topology.domains, _over_domains(total, topology.domains), strict=True)
        runs = [(one, _part(one.cores, i, of)) for one, of in shares for i in range(of)]
    return [Place(i, domain.number, cores) for i, (domain, cores) in enumerate(runs)]


def _starts(domain: Domain, size: int) -> range:
    """Return where each run of `size` cores of a domain starts."""
    return range(0, len(domain.cores) - size + 1, size)


def _joined(domains: Sequence[Domain]) -> tuple[Domain, tuple[int, ...]]:
    """Return the domain with most cores of these, and the cores of all."""
    return max(domains, key=lambda one: len(one.cores)), Topology(tuple(domains)).cores


def _over_domains(total: int, domains: Sequence[Domain]) -> list[int]:
    """Return the number of instances in each domain, at least 1: each further one goes where it gets most cores."""
    counts = [1] * len(domains)
    for _ in range(total - len(domains)):
        best = max(range(len(domains)), key=lambda i: len(domains[i].cores) / (counts[i] + 1))
        counts[best] += 1
    return counts


def _part(cores: tuple[int, ...], i: int, of: int) -> tuple[int, ...]:
    """Return the cores of the i-th of several instances; where there are more instances than cores, one of them."""
    if of > len(cores):
        return cores[i * len(cores) // of :][:1]
    return cores[slice(*share(len(cores), i, of))]
