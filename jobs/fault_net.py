"""Jobs of the matrix of faults on emulated nodes (jobs/lab/netlab.sh), the links of which can be cut."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fault_jobs import HERE, Job
from fault_moments import NET

from scaffe.files.process_state import state_of

NETLAB = HERE / "lab" / "netlab.sh"
PATIENCE = 3  # looks, a second apart, until a launcher whose ranks have ended is killed


def node_pids(nodes: int) -> list[int]:
    """Return the process ids of all processes of the nodes."""
    names = [f"nl{node}" for node in range(nodes) if Path(f"/run/netns/nl{node}").exists()]
    found = [subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout for name in names]
    return [int(pid) for one in found for pid in one.split()]


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped."""
    found = state_of(pid)
    return found is not None and found.is_stopped


class NetJob(Job):
    """A job whose ranks are on emulated nodes, `size` on each.

    `is_launcher_killed`: Open MPI's mpirun can't end without the daemon of a node, so it is killed after them.
    A stopped rank, whose node has no other, is continued once the others have ended: it must end, too.
    """

    size = 1
    launched = nodes = looks = 0
    is_launcher_killed = False

    def launcher(self, ranks: int, launch: Sequence[str]) -> tuple[list[Any], dict[str, str]]:
        """Make the nodes anew; return the command that starts so many ranks on them, and its variables."""
        self.clear()
        self.launched, self.nodes = ranks, -(-ranks // self.size)
        self.looks, self.is_launcher_killed = 0, False
        subprocess.run([NETLAB, "up", str(self.nodes)], check=True)
        files = self.folder / "mpi"  # Open MPI's, which it leaves where it is killed
        files.mkdir(exist_ok=True)
        env = {f"OMPI_MCA_{part}_sm_backing_directory": str(files) for part in ("btl", "osc")}
        env |= {"PRTE_MCA_prte_tmpdir_base": str(files), "NETLAB_MPIARGS": f"-n {ranks}"}
        env["NETLAB_MPIRUN"] = " ".join([str(HERE / "mpirun.sh"), *launch])
        command = [NETLAB, "run", "openmpi", str(self.size), "env", f"TMPDIR={self.folder / 'tmp'}", f"{NET}=1"]
        return command, env

    def look(self) -> None:
        """Continue ranks that are stopped, and kill the launcher, once all others have ended."""
        if len([*self.folder.glob("rank.*.pid")]) < self.launched:
            return
        running = self.pids()
        if any(not is_stopped(pid) for pid in running):
            self.looks = 0
            return
        self.looks += 1
        if self.looks < PATIENCE:
            return
        self.signal(signal.SIGCONT)
        if not running:
            self.is_launcher_killed = True
            self.clear()

    def clear(self) -> None:
        """Kill all processes of the nodes."""
        for pid in node_pids(self.nodes):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def kill(self, wait: float = 0.0) -> None:
        """Kill the ranks and the launcher that run still, after some seconds."""
        super().kill(wait)
        self.clear()


class PairsJob(NetJob):
    """A job with two ranks on each node."""

    size = 2
