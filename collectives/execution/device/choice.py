"""Making plans for device arrays: what suits a call, by what the MPI library and the GPUs can do."""

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
from collectives.execution.library import LibraryPlan
from collectives.execution.operations import Operation
from collectives.execution.plans import Plan
from collectives.schedules.algorithms import Choice
from collectives.verbs import SCHEDULED, VERBS

if TYPE_CHECKING:
    from mpi4py import MPI

    from collectives.execution.device.device import Device

DEVICE_CHUNK = 1 << 20  # bytes: starting a kernel or a copy takes as long as copying some 100 KB
NCCL = "nccl"
INSTEAD = {
    name: "chain" if verb.has_root else "ring" for name, verb in SCHEDULED.items()
}  # replaces what host memory alone has
MAY_END = "a process that another GPU waits for may end"
log = logging.getLogger(__name__)


class DevicePlans:
    """Makes plans for arrays of `device` over `comm`. `local` has the ranks of this node. Collective.

    `nccl` holds NCCL's communicators, which may be shared with other DevicePlans over the same ranks. With
    `through_host` MPI takes copies in pinned memory, and nothing that a GPU does depends on another process.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        local: MPI.Intracomm,
        device: Device,
        nccl: NcclCommunicators | None = None,
        through_host: bool = False,
    ):
        self.comm, self.local, self.device = comm, local, device
        self._nccl = NcclCommunicators() if nccl is None else nccl
        self.through_host = through_host
        self.direct = not through_host and all(comm.allgather(takes_device_pointers()))
        self.why_no_peers = MAY_END if through_host else self._why_no_peers()
        log.debug("Device arrays: %s", self.how)

    def _why_no_peers(self) -> str:
        """Return why ranks of a node can't map each other's memory, "" if all can. Collective."""
        return next(filter(None, self.comm.allgather(why_no_peers(self.local, self.device))), "")

    @property
    def how(self) -> str:
        """Return where the arrays lie, and how they travel."""
        taken = "MPI takes device pointers" if self.direct else "MPI takes copies in pinned memory"
        inside = f"no CUDA IPC ({self.why_no_peers})" if self.why_no_peers else "CUDA IPC"
        return f"on {self.device.name}; {taken}; between ranks of a node: {inside}"

    def choose(self, what: str, choice: Choice, nodes: int, dtype: np.dtype, elements: int) -> Choice:
        """Return `choice`, or what replaces it where it can't run on device arrays; log a replacement once."""
        name = choice.algorithm
        if not elements:
            return Choice("mpi")
        if name == NCCL and not self.why_no_nccl:
            return choice
        verb = VERBS[what]
        if verb.has_blocks and (name in ("mpi", "slices", NCCL) or name.startswith("leaders-")):
            return Choice(INSTEAD[what], why="device arrays have schedules alone for it")
        if name == "mpi" and verb.joins and dtype == np.float16:
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
        if (what, name) not in self._nccl.logged:
            self._nccl.logged.add((what, name))
            log.info("%s of device arrays by %s instead of %s: %s", what, instead, name, why)
        return Choice(instead, why=why)

    @cached_property
    def why_no_nccl(self) -> str:
        """Return why NCCL can't connect the ranks, "" if it can. Collective at its first use."""
        return MAY_END if self.through_host else why_no_nccl(self.comm, self.device, os.environ.get(SHARING) == "1")

    @cached_property
    def has_local_nccl(self) -> bool:
        """Return whether NCCL can connect the ranks of every node. Collective at its first use."""
        if self.through_host:
            return False
        why = why_no_nccl(self.local, self.device, os.environ.get(SHARING) == "1")
        return not any(self.comm.allgather(why))

    def transport(self) -> DirectTransport | StagedTransport:
        """Return the transport of one plan."""
        return DirectTransport(self.device) if self.direct else StagedTransport(self.device)

    def library(self, plan: LibraryPlan) -> DeviceLibraryPlan:
        """Return the library's own collective on device arrays."""
        return DeviceLibraryPlan(plan, self.transport(), self.direct)

    def slices(self, what: str, op: Operation | None, root: int) -> PeerPlan:
        """Return the plan in which each rank of the node joins its slice."""
        return PeerPlan(self.local, self.device, what, op, root)

    def nccl(self, what: str, op: Operation | None, root: int) -> NcclPlan:
        """Return NCCL's own collective."""
        return NcclPlan(self._nccl.get("all", self.comm, self.device), what, op, root, self.comm.size)

    def inside(self, what: str, op: Operation | None, root: int) -> Plan:
        """Return a plan over the ranks of this node."""
        if self.has_local_nccl:
            return NcclPlan(self._nccl.get("node", self.local, self.device), what, op, root, self.local.size)
        return self.slices(what, op, root)

    def leaders(self, what: str, op: Operation | None, leader: int, between: Plan | None) -> HierarchyPlan:
        """Return the plan in which each node's `leader`, a rank there, runs `between` with the other leaders."""
        inner = op and op._replace(divided=False)
        up = self.inside("reduce", inner, leader) if op else None
        down = self.inside("bcast", None, leader) if VERBS[what].spreads else None
        return HierarchyPlan(self.device, up, between, down, op, self.comm.size)
