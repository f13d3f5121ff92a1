"""StartWatch: ends the job if a rank ends before the ranks know each other, or if mpirun goes on without any.

Where Open MPI tolerates faults (mpirun --with-ft ulfm), MPI_Init waits for such a rank for ever, and keeps Python's
threads from running. So the launcher starts a process that watches, which no rank's end takes along: this file, which
imports nothing of scaffe. jobs/mpirun.sh --ft and scaffe retry run it in front of the launcher's command:

    python -I -S scaffe/parallel/watch/start.py mpirun --with-ft ulfm -n 4 ...

Elsewhere, on the other hosts of a job, and where mpirun was started by hand, the first rank that starts starts it.

/proc shows the launcher's processes on this host, and in the environment of each the rank that it has. A rank is
connected to the watch while it starts. Only then does the watch end a job: other programs may lose ranks as they like.

Later the watch sleeps, and looks rarely: mpirun has been seen to wait for ever for ranks that had all ended, where the
last one failed as the others left. That too ends the job, if all its ranks were on this host.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

RANK, RANKS, PLACES = "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"
FAULT_TOLERANT = "OMPI_MCA_mpi_ft_enable"  # set by mpirun --with-ft ulfm
WITH_FT = "--with-ft"
LAUNCHERS = "prterun", "prted", "mpirun"  # of Open MPI 5, on the first node and on others
NAP = 0.2  # seconds between two looks
LONGEST_SLEEP = 10  # looks for which a launcher may sleep while it starts ranks
LATE_NAP = 2.0  # seconds between two looks later
LATE_LOOKS = 15  # for which a launcher may go on without ranks
DONE = b"."  # a rank's last word to the watch: the ranks know each other
PROGRAM = sys.executable, "-I", "-S", __file__


def watched(command: Sequence[str]) -> list[str]:
    """Return a launcher's command, behind that of the watch if its ranks tolerate faults."""
    return [*PROGRAM, *command] if WITH_FT in command else [*command]


# A rank.


def connected() -> socket.socket | None:
    """Return a connection to this host's watch, which is started if there is none; None where none is needed."""
    launcher = launcher_of(os.getppid())
    if os.environ.get(FAULT_TOLERANT) != "1" or os.environ.get(RANKS) == "1" or not launcher:
        return None
    watch = socket.socket(socket.AF_UNIX)
    with suppress(OSError):
        if watch.connect_ex(address(launcher)):
            subprocess.run([*PROGRAM, str(launcher)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            watch.connect(address(launcher))
    return watch


def disconnect(watch: socket.socket | None) -> None:
    """Tell the watch that the ranks know each other. A rank that does not ends before that."""
    if watch is not None:
        with suppress(OSError), watch:
            watch.sendall(DONE)


def launcher_of(process: int) -> int:
    """Return a process, or the nearest one above it, that is Open MPI's launcher; 0 if none is."""
    while process and not is_launcher(process):
        process = int(parent_and_start(process)[0] or 0)
    return process


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


def ended_early(who: str) -> str:
    """Return the line that ends a job whose ranks do not know each other yet."""
    return f"scaffe: {who} has ended before all ranks had started; start the job again\n"


LEFT_ALONE = "scaffe: all ranks have ended, and mpirun does not; it is ended\n"

# What /proc says.


def parent_and_start(process: int) -> tuple[str, str]:
    """Return a process's parent, and when it started, in ticks; twice "" if it has ended."""
    try:
        fields = _fields(Path(f"/proc/{process}/stat"))
    except OSError:
        return "", ""
    is_there = len(fields) > 19 and fields[0] not in "ZX"  # fewer: it ended while it was read
    return (fields[1], fields[19]) if is_there else ("", "")


def sleeps(process: int) -> bool:
    """Return whether all threads of a process wait for something."""
    with suppress(OSError):
        return all(_fields(stat)[:1] == ["S"] for stat in Path(f"/proc/{process}/task").glob("*/stat"))
    return False


def _fields(stat: Path) -> list[str]:
    """Return the fields of proc(5) behind the name."""
    return stat.read_text().rpartition(")")[2].split()


def children(process: int) -> dict[int, str]:
    """Return the processes that a process has started and that run: when each has started."""
    every = {int(folder.name): parent_and_start(int(folder.name)) for folder in Path("/proc").glob("[0-9]*")}
    return {child: start for child, (parent, start) in every.items() if parent == str(process)}


def environment(process: int) -> dict[str, str]:
    """Return a process's environment, {} if it is hidden."""
    with suppress(OSError):
        text = Path(f"/proc/{process}/environ").read_text("latin-1")
        return dict(one.partition("=")[::2] for one in text.split("\0"))
    return {}


def address(launcher: int) -> str:
    """Return where a launcher's watch listens, which no other one on this machine has."""
    return f"\0scaffe start watch {os.readlink('/proc/self/ns/pid')} {launcher} {parent_and_start(launcher)[1]}"


# The watch.


class Ranks:
    """The ranks of a launcher on this host, by their processes: each one's rank and start.

    One that ends before it is seen is missing. A launcher that sleeps, and has no copy of itself that is to become a
    rank, is not about to start one.
    """

    def __init__(self, launcher: int):
        self._launcher = launcher
        self._seen: dict[int, tuple[str, str]] = {}
        self._places = self._size = self._asleep = 0

    def ended(self) -> str:
        """Return which rank has ended, "" if none has."""
        if not self._places or len(self._seen) < self._places:
            self._find()
        for process, (rank, start) in self._seen.items():
            if parent_and_start(process)[1] != start:
                return f"rank {rank} (process {process})"
        return "a rank" if len(self._seen) < self._places and self._asleep >= LONGEST_SLEEP else ""

    def _find(self) -> None:
        """Look for further ranks."""
        before, found = len(self._seen), children(self._launcher)
        for process in found:
            env = environment(process)
            if RANK in env and not is_launcher(process):
                self._seen[process] = env[RANK], found[process]
                self._places, self._size = int(env.get(PLACES, 0)), int(env.get(RANKS, 0))
        is_asleep = len(self._seen) == before and sleeps(self._launcher) and not any(map(is_launcher, found))
        self._asleep = self._asleep + 1 if is_asleep else 0

    def are_left(self) -> bool:
        """Return whether any rank is there."""
        self._find()
        return any(parent_and_start(process)[1] == start for process, (_, start) in self._seen.items())

    def are_all_here(self) -> bool:
        """Return whether the job has no rank on another host."""
        return 0 < self._size == self._places


def outlast(launcher: int, start: str, ranks: Ranks) -> None:
    """Return once a launcher has ended; end it if its ranks, all on this host, ended long before."""
    looks = 0
    while parent_and_start(launcher)[1] == start:
        if looks == LATE_LOOKS:
            print(LEFT_ALONE, end="", file=sys.stderr, flush=True)
            end_launcher(launcher)
        elif looks > LATE_LOOKS and is_launcher(launcher):
            os.kill(launcher, signal.SIGKILL)
        looks = 0 if ranks.are_left() or not ranks.are_all_here() else looks + 1
        nap(launcher)


def nap(process: int) -> None:
    """Sleep for LATE_NAP, or until a process has ended: whoever reads the job's output waits for the watch too."""
    try:
        end = os.pidfd_open(process)
    except OSError:  # it has ended, or Linux is older than 5.3
        return time.sleep(LATE_NAP / 10)
    ends = select.poll()  # which takes a number above 1023 too
    ends.register(end, select.POLLIN)
    ends.poll(1e3 * LATE_NAP)
    os.close(end)


def watch(server: socket.socket, launcher: int) -> None:
    """Watch until the ranks know each other, or the launcher or its ranks have ended; or end the launcher."""
    start, ranks = parent_and_start(launcher)[1], Ranks(launcher)
    starting: set[socket.socket] = set()
    who = ranks.ended()
    while start and parent_and_start(launcher)[1] == start:  # "" if it had ended before the watch began
        said = select.select([server, *starting], [], [], NAP)[0]
        for one in said:
            if one is server:
                starting.add(server.accept()[0])
            elif one.recv(1) == DONE:
                return outlast(launcher, start, ranks)
            else:
                starting.discard(one)
        if said:
            continue
        if who and starting and is_launcher(launcher):  # a look later: the launcher may be ending them all
            print(ended_early(f"{who} on {socket.gethostname()}"), end="", file=sys.stderr, flush=True)
            return end_launcher(launcher)
        if who and not ranks.are_left():
            return
        who = who or ranks.ended()


def start_watch(launcher: int) -> None:
    """Start the watch over a launcher, unless there is one, and return once ranks can connect to it."""
    server = socket.socket(socket.AF_UNIX)
    try:
        server.bind(address(launcher))
    except OSError:  # there is one
        return server.close()
    server.listen(socket.SOMAXCONN)
    if child := os.fork():
        os.waitpid(child, 0)
        return server.close()
    os.setsid()  # out of reach of a terminal's ^C, and of what ends the starter
    if os.fork() == 0:
        for stream in (sys.stdin, sys.stdout):
            os.dup2(os.open(os.devnull, os.O_RDWR), stream.fileno())
        watch(server, launcher)
    os._exit(0)


def main() -> None:
    """Start the watch over the launcher of this process id, or become the launcher of this command, with a watch."""
    given = sys.argv[1:]
    if given[0].isdigit():
        return start_watch(int(given[0]))
    start_watch(os.getpid())
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # which Python ignores
    try:
        os.execvp(given[0], given)
    except OSError as error:
        print(f"{given[0]}: {(error.strerror or str(error)).lower()}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main()
