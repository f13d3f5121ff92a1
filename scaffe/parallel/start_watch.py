"""StartWatch: ends the job if a rank of this host ends before the ranks know each other.

Where Open MPI tolerates faults (mpirun --with-ft ulfm), MPI_Init waits for such a rank for ever. It also keeps Python's
threads from running. So two of a host's ranks start a process that watches: this file, which imports nothing of scaffe.
/proc shows the launcher's processes, and in the environment of each the rank that it has.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

RANK, RANKS = "PMIX_RANK", "OMPI_COMM_WORLD_SIZE"
PLACE, PLACES = "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"
FAULT_TOLERANT = "OMPI_MCA_mpi_ft_enable"  # set by mpirun --with-ft ulfm
LAUNCHERS = "prterun", "prted", "mpirun"  # of Open MPI 5, on the first node and on others
NAP = 0.2  # seconds between two looks
PATIENCE = 2.0  # seconds in which the first rank's watch acts, before that of the other one does
LONGEST_START = 100  # looks within which the launcher starts the next process of a host: a machine may stand still
NAME = "start watch"
DONE = b"."  # written to the watch once the ranks know each other


@contextmanager
def watched_start() -> Iterator[None]:
    """Watch the ranks of this host during the block, on its first two. Not collective."""
    env = os.environ
    if env.get(FAULT_TOLERANT) != "1" or env.get(PLACE) not in ("0", "1") or env.get(RANKS) == "1":
        yield
        return
    command = [sys.executable, "-I", "-S", __file__, str(os.getppid()), str(os.getpid())]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        yield
    finally:
        with suppress(OSError):
            process.communicate(DONE)


def ranks_here(launcher: int) -> dict[int, tuple[int, str]]:
    """Return the launcher's processes on this host by their ranks: each one's id and start."""
    found = {}
    for process in [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]:
        parent, start = parent_and_start(process)
        with suppress(OSError):
            if parent == str(launcher):
                text = Path(f"/proc/{process}/environ").read_text("latin-1")
                if rank := dict(one.partition("=")[::2] for one in text.split("\0")).get(RANK):
                    found[int(rank)] = process, start
    return found


def parent_and_start(process: int) -> tuple[str, str]:
    """Return a process's parent, and when it started, in ticks; twice "" if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", ""
    return ("", "") if fields[0] in "ZX" else (fields[1], fields[19])


def first_to_end(env: Mapping[str, str], launcher: int, parent: int) -> str:
    """Return which rank ends first, with its process; "" if stdin says before that the ranks know each other.

    `parent` is the rank's process that writes to stdin. Once all ranks are found, this process has the name NAME.
    """
    ranks: dict[int, tuple[int, str]] = {}
    looks = 0
    while not select.select([sys.stdin], [], [], NAP)[0]:
        for rank, (process, start) in ranks.items():
            if parent_and_start(process)[1] != start:
                return f"rank {rank} (process {process})"
        if len(ranks) < int(env[PLACES]):
            before, ranks = len(ranks), ranks_here(launcher)
            looks = looks + 1 if len(ranks) <= before else 0
            if len(ranks) == int(env[PLACES]):
                with suppress(OSError):  # some containers forbid it
                    Path("/proc/self/comm").write_text(NAME)
            elif looks > LONGEST_START and is_launcher(launcher):
                return "a rank"
    return "" if os.read(0, 1) == DONE else f"rank {env[RANK]} (process {parent})"


def ended_early(who: str) -> str:
    """Return the line that ends a job whose ranks do not know each other yet."""
    return f"scaffe: {who} has ended before all ranks had started; start the job again\n"


def is_launcher(process: int) -> bool:
    """Return whether a process is Open MPI's launcher."""
    with suppress(OSError):
        return Path(f"/proc/{process}/comm").read_text().strip() in LAUNCHERS
    return False


def end_launcher(process: int) -> None:
    """End a rank's parent, and so the job, if it is the launcher."""
    if is_launcher(process):
        with suppress(OSError):
            os.kill(process, signal.SIGTERM)


def main() -> None:
    """Watch until the ranks know each other, or end the launcher. The arguments: its process id, and the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which the ranks handle
    launcher, parent = map(int, sys.argv[1:])
    who = first_to_end(os.environ, launcher, parent)
    if who and os.environ[PLACE] != "0":
        time.sleep(PATIENCE)
    if who and parent_and_start(launcher)[1]:
        print(ended_early(f"{who} on {socket.gethostname()}"), end="", file=sys.stderr, flush=True)
        end_launcher(launcher)


if __name__ == "__main__":
    main()
