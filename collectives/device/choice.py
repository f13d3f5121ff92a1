"""What a communicator needs to make plans for device arrays: how MPI takes them, and whether ranks see each other's."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from collectives.device.aware import takes_device_pointers
from collectives.device.moves import DirectMemory, StagedMemory
from collectives.device.plans import DeviceLibraryPlan, PeerPlan, why_no_peers
from collectives.operations import Operation
from collectives.plans import LibraryPlan
from collectives.tuning import Choice

if TYPE_CHECKING:
    from mpi4py import MPI

    from collectives.device.device import Device

DEVICE_CHUNK = 1 << 20  # bytes: a kernel's start and a copy's take as long as some 100 KB of copying
INSTEAD = {"reduce": "chain", "bcast": "chain", "allreduce": "ring"}  # of what is for host memory alone
log = logging.getLogger(__name__)


class DevicePlans:
    """Plans for arrays of `device` over `comm`, whose ranks on this node are those of `local`. Collective."""

    def __init__(self, comm: MPI.Intracomm, local: MPI.Intracomm, device: Device):
        self.local, self.device = local, device
        self.direct = all(comm.allgather(takes_device_pointers()))
        self.why_no_peers = next(filter(None, comm.allgather(why_no_peers(local, device))), "")
        log.debug("Device arrays: %s", self.how)

    @property
    def how(self) -> str:
        """Where the arrays lie, and how they travel."""
        taken = "MPI takes device pointers" if self.direct else "MPI takes copies in pinned memory"
        inside = f"no CUDA IPC ({self.why_no_peers})" if self.why_no_peers else "CUDA IPC"
        return f"on {self.device.name}; {taken}; between ranks of a node: {inside}"

    def choose(self, what: str, choice: Choice, nodes: int, dtype: np.dtype, elements: int) -> Choice:
        """Return what is done instead where a choice is not for device arrays, and say so in the log."""
        name = choice.algorithm
        if not elements:
            return Choice("mpi")
        if name == "mpi" and what != "bcast" and dtype == np.float16:
            return Choice(INSTEAD[what], why="MPI has no half precision")
        if name == "slices" and nodes == 1 and not self.why_no_peers:
            return choice
        if name != "slices" and not name.startswith("leaders-"):
            return choice
        why = self.why_no_peers or ("device arrays go between nodes by schedules" if nodes > 1 else "one node")
        log.info("%s of device arrays by %s instead of %s: %s", what, INSTEAD[what], name, why)
        return Choice(INSTEAD[what], why=why)

    def memory(self) -> DirectMemory | StagedMemory:
        """Return the moves of one plan."""
        return DirectMemory(self.device) if self.direct else StagedMemory(self.device)

    def library(self, plan: LibraryPlan) -> DeviceLibraryPlan:
        """Return the library's own collective on device arrays."""
        return DeviceLibraryPlan(plan, self.memory(), self.direct)

    def slices(self, what: str, op: Operation | None, root: int) -> PeerPlan:
        """Return the plan by which each rank of the node joins its slice."""
        return PeerPlan(self.local, self.device, what, op, root)
