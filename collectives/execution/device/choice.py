"""What a communicator needs to make plans for device arrays: how MPI takes them, and whether ranks see each other's."""

from __future__ import annotations

import logging
import os
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from collectives.execution.device.aware import takes_device_pointers
from collectives.execution.device.hierarchy import HierarchyPlan
from collectives.execution.device.nccl import SHARING, NcclCommunicators, NcclPlan, why_no_nccl
from collectives.execution.device.plans import DeviceLibraryPlan, PeerPlan, why_no_peers
from collectives.execution.device.transports import DirectTransport, StagedTransport
from collectives.execution.operations import Operation
from collectives.execution.plans import LibraryPlan, Plan
from collectives.schedules.algorithms import Choice

if TYPE_CHECKING:
    from mpi4py import MPI

    from collectives.execution.device.device import Device

DEVICE_CHUNK = 1 << 20  # bytes: a kernel's start and a copy's take as long as some 100 KB of copying
NCCL = "nccl"
INSTEAD = {"reduce": "chain", "bcast": "chain", "allreduce": "ring"}  # of what is for host memory alone
log = logging.getLogger(__name__)


class DevicePlans:
    """Plans for arrays of `device` over `comm`, whose ranks on this node are those of `local`. Collective."""

    def __init__(
        self, comm: MPI.Intracomm, local: MPI.Intracomm, device: Device, nccl: NcclCommunicators | None = None
    ):
        self.comm, self.local, self.device = comm, local, device
        self._nccl = NcclCommunicators() if nccl is None else nccl
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
        if name == NCCL and not self.why_no_nccl:
            return choice
        if name == "mpi" and what != "bcast" and dtype == np.float16:
            return Choice(INSTEAD[what], why="MPI has no half precision")
        if name == "slices" and nodes == 1 and not self.why_no_peers:
            return choice
        if name not in ("slices", NCCL) and not name.startswith("leaders-"):
            return choice
        if name.startswith("leaders-") and nodes > 1 and (self.has_local_nccl or not self.why_no_peers):
            return choice
        instead = INSTEAD[what] if nodes > 1 or self.why_no_peers else "slices"
        why = self.why_no_nccl if name == NCCL else self.why_no_peers
        why = why or ("these ranks are on several nodes" if nodes > 1 else "these ranks are on one node")
        if (what, name) not in self._nccl.told:
            self._nccl.told.add((what, name))
            log.info("%s of device arrays by %s instead of %s: %s", what, instead, name, why)
        return Choice(instead, why=why)

    @cached_property
    def why_no_nccl(self) -> str:
        """Why NCCL can't join the ranks, "" if it can. Collective when it is first asked for."""
        return why_no_nccl(self.comm, self.device, os.environ.get(SHARING) == "1")

    @cached_property
    def has_local_nccl(self) -> bool:
        """Whether NCCL can join the ranks of every node. Collective when it is first asked for."""
        why = why_no_nccl(self.local, self.device, os.environ.get(SHARING) == "1")
        return not any(self.comm.allgather(why))

    def transport(self) -> DirectTransport | StagedTransport:
        """Return the moves of one plan."""
        return DirectTransport(self.device) if self.direct else StagedTransport(self.device)

    def library(self, plan: LibraryPlan) -> DeviceLibraryPlan:
        """Return the library's own collective on device arrays."""
        return DeviceLibraryPlan(plan, self.transport(), self.direct)

    def slices(self, what: str, op: Operation | None, root: int) -> PeerPlan:
        """Return the plan by which each rank of the node joins its slice."""
        return PeerPlan(self.local, self.device, what, op, root)

    def nccl(self, what: str, op: Operation | None, root: int) -> NcclPlan:
        """Return NCCL's own collective."""
        return NcclPlan(self._nccl.get("all", self.comm, self.device), what, op, root, self.comm.size)

    def inside(self, what: str, op: Operation | None, root: int) -> Plan:
        """Return a plan over the ranks of this node alone."""
        if self.has_local_nccl:
            return NcclPlan(self._nccl.get("node", self.local, self.device), what, op, root, self.local.size)
        return self.slices(what, op, root)

    def leaders(self, what: str, op: Operation | None, leader: int, between: Plan | None) -> HierarchyPlan:
        """Return the plan in which a node's `leader`, by its rank there, has `between` with the others'."""
        inner = op and op._replace(divided=False)
        up = None if what == "bcast" else self.inside("reduce", inner, leader)
        down = None if what == "reduce" else self.inside("bcast", None, leader)
        return HierarchyPlan(self.device, up, between, down, op, self.comm.size)
