"""Hosts: what the ranks of a job know of each other, and the lines that say where they run.

A rank knows the ranks of its own host in full, and of the others the host's name: of 10,000 ranks on 1,250 hosts each
gets 1,250 names, and for the log the cores of the first few hosts' ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from collectives.group import Group, among, from_firsts
from scaffe.files.lock_owner import Owner, this_process
from scaffe.parallel.instances.topology import parse_ranges, ranges

if TYPE_CHECKING:
    from mpi4py import MPI

    from scaffe.devices.gpu import Gpu

Place = tuple[str, list[int]]  # host and cores
SHOWN = 8  # hosts that have a line
ELSEWHERE = "elsewhere"  # for the bus address of a GPU of another host


class PlacedRanks(Protocol):
    """The part of a World that is shown."""

    @property
    def rank(self) -> int:
        """The number of the rank that asks."""

    @property
    def host(self) -> str:
        """Its host."""

    @property
    def cores(self) -> Sequence[int]:
        """The cores that it is bound to."""

    @property
    def threads(self) -> int:
        """The threads that it computes with."""

    @property
    def places(self) -> Sequence[Place]:
        """Host and cores, by rank."""

    @property
    def gpus(self) -> Sequence[str]:
        """The GPUs' bus addresses, by rank."""

    @property
    def gpu(self) -> Gpu | None:
        """The GPU of the rank that asks."""


def find_places(comm: MPI.Intracomm, group: Group, cores: list[int]) -> tuple[list[Place], list[Owner]]:
    """Return host and cores of all ranks, and their processes, as `World` has them. Collective.

    `group` has the nodes of `comm`. Of a node its first rank tells the others the host's name alone, and of the first
    SHOWN nodes the ranks' cores; the ranks of a host tell each other the rest.
    """
    mine, masks = this_process(), list[str]()
    members = group.members(comm.rank)
    if group.nodes[comm.rank] < SHOWN:
        node = among(comm, members)
        masks = node.allgather(ranges(cores))
        node.Free()
    places: list[Place] = [("", [])] * comm.size
    launched: list[Owner] = [mine] * comm.size
    told = (line.decode().split(" ") for line in from_firsts(comm, group, " ".join([mine.host, *masks]).encode()))
    nodes = [(name, map(parse_ranges, known), Owner(name, 0, 0, "", "", 0, "")) for name, *known in told]
    for rank, node_of in enumerate(group.nodes):
        name, known, launched[rank] = nodes[node_of]
        places[rank] = name, list(next(known, ()))
    here = [rank for rank, (host, _) in enumerate(places) if host == mine.host]
    near = among(comm, here)
    for rank, (own, process) in zip(here, near.allgather((cores, mine)), strict=True):
        places[rank], launched[rank] = (mine.host, own), process
    near.Free()
    return places, launched


def describe(world: PlacedRanks) -> list[str]:
    """Return a line per host: the cores, and the GPU, of each of its ranks.

    Of more than SHOWN hosts the first have a line, then there is one with the number of the others.
    """
    hosts: dict[str, list[str]] = {}
    for rank, (host, cores) in enumerate(world.places):
        lines = hosts.setdefault(host, [])
        if len(hosts) <= SHOWN:
            lines.append(f"rank {rank} on cores {ranges(cores)}{_gpu(world.gpus[rank]) if world.gpu else ''}")
    shown = [f"{host}: {', '.join(ranks)}" for host, ranks in hosts.items() if ranks]
    return [*shown, *([f"and {len(hosts) - len(shown)} more hosts"] if len(hosts) > len(shown) else [])]


def _gpu(bus: str) -> str:
    """Return what is known of a rank's GPU."""
    return " and a GPU" if bus == ELSEWHERE else f" and the GPU at {bus}"


def fair_threads(host: str, cores: list[int], places: list[tuple[str, list[int]]]) -> int:
    """Return the threads of each rank that shares these cores; `places` holds host and cores of all ranks."""
    rivals = sum(other == host and not set(cores).isdisjoint(theirs) for other, theirs in places)
    return max(1, len(cores) // rivals)


def crowding(world: PlacedRanks) -> str:
    """Return a warning if ranks have more threads than the cores they share, on the lowest of them; else ""."""
    sharing = {
        rank: cores
        for rank, (host, cores) in enumerate(world.places)
        if host == world.host and not {*cores}.isdisjoint(world.cores)
    }
    cores = len({core for cores in sharing.values() for core in cores})
    if world.rank != min(sharing) or len(sharing) * world.threads <= cores:
        return ""
    return (
        f"{len(sharing)} rank(s) with {world.threads} thread(s) each share {cores} core(s) of {world.host}: they "
        "wait for each other; start fewer ranks, or give each fewer threads with --threads"
    )


def gpu_crowding(world: PlacedRanks) -> str:
    """Return a warning if other ranks share this rank's GPU, on the lowest of them; else ""."""
    if world.gpu is None:
        return ""
    mine = world.host, world.gpu.bus
    sharing = [rank for rank, bus in enumerate(world.gpus) if (world.places[rank][0], bus) == mine]
    if len(sharing) == 1 or world.rank != sharing[0]:
        return ""
    return (
        f"ranks {ranges(sharing)} share the GPU at {world.gpu.bus} of {world.host}: each has a part of its memory, "
        "and they take turns; start a rank for each GPU"
    )
