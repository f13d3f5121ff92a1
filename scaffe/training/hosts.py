"""Hosts: those that a launcher's command starts ranks on, and the command without the ones that are lost.

Hosts come from the command's host list or host file, else from SLURM's allocation. A host is lost where the launcher
says so on stderr, where SLURM has it down, or where it no longer answers on the network.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from scaffe.errors import RanksLostError

# How Open MPI's mpirun (twice) and SLURM's srun name a host that they have lost.
LOST_HOST = re.compile(rb"Remote daemon: \S+ on node ([\w.-]+)|Remote host: +([\w.-]+)|Node failure on ([\w.-]+)")
LISTS = "-H", "-host", "--host", "-hosts", "--hosts"
FILES = "-hostfile", "--hostfile", "-machinefile", "--machinefile", "-f"
RANKS = "-n", "-np", "--n", "--np"
ENTRY = re.compile(r"\s*([\w.-]+)(?::(\d+)|.*\bslots *= *(\d+))?")
PORT, SECONDS = 22, 3  # a connection to a host that answers is made, or refused, within so many seconds


def named(line: bytes) -> str:
    """Return the host that a line of a launcher's stderr says is lost, "" for another line."""
    found = LOST_HOST.search(line)
    return next(filter(None, found.groups())).decode() if found else ""


class Hosts:
    """The hosts of a launcher's command, with the number of ranks that each has room for.

    `command` is that of the next try; `drop` takes lost hosts out of it. `min_ranks` is the least number of ranks to
    start; `weak` says that the global batch follows their number. `silent(hosts)` returns those that no longer answer.
    """

    def __init__(
        self,
        command: Sequence[str],
        min_ranks: int = 1,
        weak: bool = False,
        silent: Callable[[Collection[str]], set[str]] | None = None,
        environment: Mapping[str, str] = os.environ,
    ):
        self.command, self._given = [*command], [*command]
        self.min_ranks, self.weak, self._environment = min_ranks, weak, environment
        self._is_slurms = "SLURM_JOB_ID" in environment
        self._silent = silent or (down if self._is_slurms else unreachable)
        launcher = self._given[: self._given.index("train")] if "train" in self._given else self._given
        self._at = {word: k + 1 for k, word in enumerate(launcher[:-1]) if word in (*LISTS, *FILES, *RANKS)}
        self._room = self._rooms()
        self._lost: set[str] = set()
        self._file: IO[str] | None = None  # the host file without lost hosts, removed with this object

    def drop(self, said: Collection[str]) -> str:
        """Take away the hosts that the launcher says are lost, or else those that are silent; return a text, or "".

        Raise RanksLostError where fewer ranks than `min_ranks` are left.
        """
        present = {host for host in self._room if host not in self._lost}
        lost = present & {*said} or present & self._silent(present)
        if not lost or lost == present:
            return ""
        before = self._ranks()
        self._lost |= lost
        ranks = self._ranks()
        text = f"without {', '.join(sorted(lost))} {ranks} of {before} rank(s) are left"
        if ranks < self.min_ranks:
            raise RanksLostError(f"{text}, fewer than --min-ranks {self.min_ranks}")
        self.command = self._restricted(ranks)
        return text + ("; the global batch shrinks with them, the learning rate stays" if self.weak else "")

    def _option(self, names: Sequence[str]) -> int:
        """Return the place of an option's value in the command, 0 if it has none."""
        return next((self._at[name] for name in names if name in self._at), 0)

    def _rooms(self) -> dict[str, int]:
        if at := self._option(LISTS):
            return _rooms(self._given[at].split(","))
        if at := self._option(FILES):
            return _rooms(Path(self._given[at]).read_text().splitlines()) if Path(self._given[at]).is_file() else {}
        return allocated(self._environment) if self._is_slurms else {}

    def _ranks(self) -> int:
        """Return the number of ranks on the hosts that are left: as many as asked for, where they have room."""
        every, room = sum(self._room.values()), sum(n for host, n in self._room.items() if host not in self._lost)
        at = self._option(RANKS)
        asked = self._given[at] if at else self._environment.get("SLURM_NTASKS", "") if self._is_slurms else ""
        return min(int(asked), max(room, int(asked) * room // every)) if asked.isdigit() else room

    def _restricted(self, ranks: int) -> list[str]:
        """Return the command that starts so many ranks on the hosts that are left."""
        command = [*self._given]
        if at := self._option(RANKS):
            command[at] = str(ranks)
        if at := self._option(LISTS):
            command[at] = ",".join(one for one in command[at].split(",") if _host(one) not in self._lost)
        elif at := self._option(FILES):
            command[at] = self._file_without(command[at])
        elif Path(command[0]).name == "srun":
            nodes = len(self._room) - len(self._lost)
            command[1:1] = [f"--exclude={','.join(sorted(self._lost))}", f"--nodes={nodes}", f"--ntasks={ranks}"]
        else:
            rooms = (f"{host}:{room}" for host, room in self._room.items() if host not in self._lost)
            command[1:1] = ["--host", ",".join(rooms)]
        return command

    def _file_without(self, path: str) -> str:
        """Write a host file without the lost hosts; return its path."""
        lines = [line for line in Path(path).read_text().splitlines(keepends=True) if _host(line) not in self._lost]
        self._file = tempfile.NamedTemporaryFile("w", prefix="scaffe-hosts-")  # noqa: SIM115  the launcher reads it
        self._file.writelines(lines)
        self._file.flush()
        return self._file.name


def _host(entry: str) -> str:
    """Return the host of an entry of a list, or of a file's line; "" if it has none."""
    found = ENTRY.match(entry)
    return found[1] if found else ""


def _rooms(entries: Sequence[str]) -> dict[str, int]:
    """Return for how many ranks each host has room, by a list's entries or a file's lines; a host may come again."""
    rooms: dict[str, int] = {}
    for found in map(ENTRY.match, entries):
        if found:
            rooms[found[1]] = rooms.get(found[1], 0) + int(found[2] or found[3] or 1)
    return rooms


def allocated(environment: Mapping[str, str]) -> dict[str, int]:
    """Return the hosts of SLURM's allocation, with the tasks of each."""
    hosts = _output("scontrol", "show", "hostnames", environment.get("SLURM_JOB_NODELIST", "")).split()
    counts: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", environment.get("SLURM_TASKS_PER_NODE", "")):
        counts += [int(count)] * int(times or 1)
    return dict(zip(hosts, counts, strict=False))


def down(hosts: Collection[str]) -> set[str]:
    """Return the hosts that SLURM has down, or that do not answer it."""
    lines = _output("sinfo", "--noheader", "--Node", "--nodes", ",".join(hosts), "--format", "%N %t").splitlines()
    states = [line.split() for line in lines]
    return {host for host, state in states if state.startswith(("down", "fail", "unk")) or state.endswith("*")}


def unreachable(hosts: Collection[str]) -> set[str]:
    """Return the hosts that do not answer within SECONDS; none where no other host answers, as behind a firewall."""
    others = [host for host in hosts if host not in (socket.gethostname(), "localhost")]
    with ThreadPoolExecutor(32) as pool:
        silent = {host for host, answers in zip(others, pool.map(_answers, others), strict=True) if not answers}
    return silent if len(silent) < len(others) or len(others) < len(hosts) else set()


def _answers(host: str) -> bool:
    """Return whether a host accepts or refuses a connection; True if its name is unknown here."""
    try:
        socket.create_connection((host, PORT), SECONDS).close()
    except (ConnectionError, socket.gaierror):
        pass
    except OSError:
        return False
    return True


def _output(*command: str) -> str:
    """Return what a command of SLURM prints, "" if it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
