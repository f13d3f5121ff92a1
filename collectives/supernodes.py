"""Supernodes: groups of nodes with fast links inside and slower ones between, such as a rack behind a switch.

Which hosts stand in which one is told by a list of their names, "n0,n1;n2,n3", by a pattern whose parts in parentheses
name the supernode, "rack(\\d+)-.*", or by "slurm", as SLURM's topology/tree tells each task (SLURM_TOPOLOGY_ADDR).
Ranks are then numbered so that little is sent between supernodes (swCaffe, section V.A): see `Group`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from socket import gethostname
from typing import TYPE_CHECKING

from collectives.errors import ArgumentError
from collectives.group import Group
from collectives.schedules.algorithms import make_schedule, order_for
from collectives.schedules.schedule import Op, Schedule

if TYPE_CHECKING:
    from mpi4py import MPI

SLURM = "slurm"
HOST = r"[\w.-]+"
EXAMPLES = "expected hosts as in 'n0,n1;n2,n3', a pattern such as 'rack(\\d+)-.*', or slurm"
MOST_STEPS = 1 << 20  # of all ranks, that `crossing` may count
Supernodes = str | Sequence[Sequence[str]]


def as_text(told: Supernodes) -> str:
    """Return the text for a list of lists of hosts; a text stays as it is."""
    return told if isinstance(told, str) else ";".join(",".join(hosts) for hosts in told)


def finder(told: Supernodes, environment: Mapping[str, str] = os.environ) -> Callable[[str], str]:
    """Return the function that names the supernode of a host. Raise ArgumentError for a text that makes no sense.

    The function raises ArgumentError for a host that is in none, or of which SLURM says nothing.
    """
    text = as_text(told)
    if text == SLURM:
        return lambda host: _of_slurm(environment)
    return _by_pattern(text) if "(" in text else _by_list(text)


def find_supernodes(comm: MPI.Intracomm, group: Group, told: Supernodes) -> Group:
    """Return the group with each rank in its host's supernode. Collective; all ranks are `told` the same.

    Raise ArgumentError on all ranks where a host is in none, and where ranks of a node are in two.
    """
    name = problem = ""
    try:
        name = finder(told)(gethostname())
    except ArgumentError as error:
        problem = str(error)
    names, problems = zip(*comm.allgather((name, problem)), strict=True)
    if wrong := next(filter(None, problems), ""):
        where = "" if set(problems) == {wrong} else f"rank {problems.index(wrong)}: "
        raise ArgumentError(where + wrong)
    return group.with_supernodes(names)


def crossing(schedule: Schedule, group: Group) -> int:
    """Return how many elements the ranks of a schedule send to other supernodes."""
    return sum(
        step.stop - step.start
        for rank in range(schedule.size)
        for step in schedule.rank(rank)
        if step.op is Op.SEND and group.supernodes[rank] != group.supernodes[step.peer]
    )


def describe_crossing(what: str, algorithm: str, nbytes: int, group: Group) -> str:
    """Say how many bytes cross between supernodes, and how many would if the ranks' order knew of nodes alone.

    `group` has a rank for each that takes part in the schedule. Raise AlgorithmError for one that is none.
    """
    flat = replace(group, supernodes=(0,) * group.size)
    found = [
        make_schedule(what, algorithm, group.size, nbytes, chunk=max(1, nbytes), order=order_for(algorithm, each))
        for each in (group, flat)
    ]
    count = f"{len(set(group.supernodes))} supernodes"
    if len(found[0].rank(0)) * group.size > MOST_STEPS:
        return f"{count}, too many messages to count those between them"
    ours, theirs = (crossing(schedule, group) for schedule in found)
    return f"{count}, between which {ours} bytes go; without renumbering {theirs}"


def _by_list(text: str) -> Callable[[str], str]:
    supernodes: dict[str, str] = {}
    for number, hosts in enumerate(text.split(";")):
        for host in map(str.strip, hosts.split(",")):
            if not re.fullmatch(HOST, host):
                raise ArgumentError(f"supernodes: '{host}' is no host's name; {EXAMPLES}")
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
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise ArgumentError(f"supernodes: the pattern '{text}' is none: {error}") from None
    if not pattern.groups:
        raise ArgumentError(f"supernodes: the pattern '{text}' has no part in parentheses that names a supernode")

    def find(host: str) -> str:
        match = pattern.fullmatch(host) or pattern.fullmatch(_short(host))
        if not match:
            raise ArgumentError(f"supernodes: host {host} does not match the pattern '{text}'")
        return ".".join(part or "" for part in match.groups())

    return find


def _of_slurm(environment: Mapping[str, str]) -> str:
    """Return the switches above this task's node: all of its address but the node's own name."""
    address, kinds = (environment.get(f"SLURM_TOPOLOGY_ADDR{end}", "") for end in ("", "_PATTERN"))
    if not address or not kinds:
        raise ArgumentError(
            "supernodes: SLURM_TOPOLOGY_ADDR and ..._ADDR_PATTERN are not set; start with srun, or name the hosts"
        )
    parts = address.split(".", kinds.count("."))
    if len(parts) != kinds.count(".") + 1:
        raise ArgumentError(f"supernodes: SLURM_TOPOLOGY_ADDR '{address}' is not of its pattern '{kinds}'")
    if len(parts) < 2:
        raise ArgumentError(f"supernodes: SLURM knows no switches here, only nodes: SLURM_TOPOLOGY_ADDR is '{address}'")
    return ".".join(parts[:-1])


def _short(host: str) -> str:
    return host.partition(".")[0]
