r"""Supernodes: groups of nodes with fast links inside and slower links between, such as racks behind one switch.

The user describes them in one of three ways:

- a list of hosts, `n0,n1;n2,n3`, or the same as a list of lists;
- a pattern whose groups in parentheses name the supernode, `rack(\d+)-.*`;
- `slurm`, which reads SLURM's topology from each task's SLURM_TOPOLOGY_ADDR.

Ranks are then numbered so that little data crosses supernodes (swCaffe, section V.A): see `Group`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from socket import gethostname
from typing import TYPE_CHECKING

from collectives.agreement import share
from collectives.errors import ArgumentError
from collectives.group import Group
from collectives.schedules.algorithms import make_schedule, order_for
from collectives.schedules.schedule import Schedule, StepKind

if TYPE_CHECKING:
    from mpi4py import MPI

SLURM = "slurm"
HOST = r"[\w.-]+"
EXAMPLES = "expected hosts as in 'n0,n1;n2,n3', a pattern such as 'rack(\\d+)-.*', or slurm"
MOST_STEPS = 1 << 20  # steps of all ranks; `describe_crossing` counts no longer schedule
Supernodes = str | Sequence[Sequence[str]]


def as_text(spec: Supernodes) -> str:
    """Return the text form of a list of lists of hosts; return a text unchanged."""
    return spec if isinstance(spec, str) else ";".join(",".join(hosts) for hosts in spec)


def finder(spec: Supernodes, environment: Mapping[str, str] = os.environ) -> Callable[[str], str]:
    """Return the function that maps a host's name to its supernode's name.

    Raise ArgumentError for an invalid description. The function raises ArgumentError for a host in no supernode, and
    where SLURM gives no topology.
    """
    text = as_text(spec)
    if text == SLURM:
        return lambda host: _of_slurm(environment)
    return _by_pattern(text) if "(" in text else _by_list(text)


def find_supernodes(comm: MPI.Intracomm, group: Group, spec: Supernodes) -> Group:
    """Return `group` with each rank in its host's supernode. Collective; `spec` is the same on all ranks.

    Raise ArgumentError on all ranks where a host is in no supernode, and where ranks of one node are in two.
    """
    name, problem = "", None
    try:
        name = finder(spec)(gethostname())
    except ArgumentError as error:
        problem = error
    share(comm, problem)
    return group.with_supernodes(comm.allgather(name))


def crossing(schedule: Schedule, group: Group) -> int:
    """Return how many elements the schedule sends from one supernode to another."""
    return sum(
        step.stop - step.start
        for rank in range(schedule.size)
        for step in schedule.rank(rank)
        if step.kind is StepKind.SEND and group.supernodes[rank] != group.supernodes[step.peer]
    )


def describe_crossing(what: str, algorithm: str, nbytes: int, group: Group) -> str:
    """Return a sentence: the bytes that cross supernodes, and those that would in an order that ignores supernodes.

    `group` has one entry for each rank of the schedule. Raise AlgorithmError for an unknown algorithm.
    """
    flat = replace(group, supernodes=(0,) * group.size)
    found = [
        make_schedule(what, algorithm, group.size, nbytes, chunk=max(1, nbytes), order=order_for(algorithm, each))
        for each in (group, flat)
    ]
    count = f"{len(set(group.supernodes))} supernodes"
    if len(found[0].rank(0)) * group.size > MOST_STEPS:
        return f"{count}; too many messages to count those between them"
    ours, theirs = (crossing(schedule, group) for schedule in found)
    return f"{count}; {ours} bytes cross them, without renumbering {theirs}"


def _by_list(text: str) -> Callable[[str], str]:
    """Return the finder for a list of hosts."""
    supernodes: dict[str, str] = {}
    for number, hosts in enumerate(text.split(";")):
        for host in map(str.strip, hosts.split(",")):
            if not re.fullmatch(HOST, host):
                raise ArgumentError(f"supernodes: '{host}' is not a host name; {EXAMPLES}")
            if supernodes.setdefault(host, str(number)) != str(number):
                raise ArgumentError(
                    f"supernodes: host {host} is in two of them, number {supernodes[host]} and {number}"
                )

    def find(host: str) -> str:
        name = supernodes.get(host, supernodes.get(_short(host), ""))
        if not name:
            raise ArgumentError(f"supernodes: host {host} is in none of '{text}'")
        return name

    return find


def _by_pattern(text: str) -> Callable[[str], str]:
    """Return the finder for a pattern."""
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise ArgumentError(f"supernodes: the pattern '{text}' is invalid: {error}") from None
    if not pattern.groups:
        raise ArgumentError(f"supernodes: the pattern '{text}' has no part in parentheses that names a supernode")

    def find(host: str) -> str:
        match = pattern.fullmatch(host) or pattern.fullmatch(_short(host))
        if not match:
            raise ArgumentError(f"supernodes: host {host} does not match the pattern '{text}'")
        return ".".join(part or "" for part in match.groups())

    return find


def _of_slurm(environment: Mapping[str, str]) -> str:
    """Return the path of switches above this task's node: its SLURM address without the node's own name."""
    address, kinds = (environment.get(f"SLURM_TOPOLOGY_ADDR{end}", "") for end in ("", "_PATTERN"))
    if not address or not kinds:
        raise ArgumentError(
            "supernodes: SLURM_TOPOLOGY_ADDR and ..._ADDR_PATTERN are not set; start with srun, or name the hosts"
        )
    parts = address.split(".", kinds.count("."))
    if len(parts) != kinds.count(".") + 1:
        raise ArgumentError(f"supernodes: SLURM_TOPOLOGY_ADDR '{address}' does not match its pattern '{kinds}'")
    if len(parts) < 2:
        raise ArgumentError(f"supernodes: SLURM gives nodes but no switches: SLURM_TOPOLOGY_ADDR is '{address}'")
    return ".".join(parts[:-1])


def _short(host: str) -> str:
    """Return a host's name without its domain."""
    return host.partition(".")[0]
