"""Making plans for device arrays: what suits a call, by what the MPI library and the GPUs can do."""

from __future__ import annotations

import logging
import os
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from collectives.execution.device.aware import takes_device_pointers
from collectives.execution.device.coded import DeviceCodecTransport
from collectives.execution.device.hierarchy import HierarchyPlan
from collectives.execution.device.nccl import SHARING, NcclCommunicators, NcclPlan, why_no_nccl
from collectives.execution.device.plans import DeviceLibraryPlan, Parts, PeerPlan, why_no_peers
from collectives.execution.device.through_host import is_consecutive, through_host
from collectives.execution.device.transports import DirectTransport, StagedTransport
from collectives.execution.library import LibraryPlan
from collectives.execution.node_plans import Root
from collectives.execution.operations import Operation
from collectives.execution.plans import Plan
from collectives.schedules.algorithms import Choice
from collectives.verbs import SCHEDULED, VERBS, Slice

if TYPE_CHECKING:
    from mpi4py import MPI

    from collectives.execution.device.device import Device

DEVICE_CHUNK = 1 << 20  # bytes: starting a kernel or a copy takes as long as copying some 100 KB
AUTO, NCCL = "auto", "nccl"
DEVICE, THROUGH_HOST = "device", "device through host"  # MPI takes device pointers, or copies in pinned memory
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

    def choose(
        self, what: str, choice: Choice, nodes: int, ranks: int, dtype: np.dtype, elements: int, numbers: str = ""
    ) -> Choice:
        """Return `choice`, or what replaces it where it can't run on device arrays; log a replacement once.

        AUTO is what suits such devices where no table has a row. `ranks` are those on each node, 0 where these differ.
        With `numbers`, which schedules of ours alone can send, AUTO is one of these, on all ranks or between nodes.
        """
        verb, name = VERBS[what], choice.algorithm
        if not elements:
            return Choice(INSTEAD[what] if verb.has_blocks else "mpi")
        if name == AUTO:
            return self._scheduled(what, nodes, ranks, f"for {numbers}") if numbers else self._usual(what, nodes, ranks)
        if name == NCCL and not self.why_no_nccl:
            return choice
        if numbers and name in ("mpi", NCCL, "slices"):
            return choice  # whose maker refuses it
        if verb.has_blocks and name in ("mpi", "leaders-mpi"):
            name = name.replace("mpi", INSTEAD[what])
            choice = Choice(name, why="device arrays have schedules alone for it")
        if name == "mpi" and verb.joins and dtype == np.float16:
            return Choice(INSTEAD[what], why="MPI has no half precision")
        if name not in ("slices", NCCL) and not name.startswith("leaders-"):
            return choice
        differ = self.through_host and nodes > 1 and not ranks  # which a lost rank may bring about
        if name != NCCL and (name == "slices") == (nodes == 1) and self.reaches(nodes) and not differ:
            return choice
        instead = INSTEAD[what] if nodes > 1 or self.why_no_peers or numbers else "slices"
        why = self.why_no_nccl if name == NCCL else self.why_no_peers
        why = "nodes differ in their numbers of ranks" if differ and name.startswith("leaders-") else why
        why = why or ("these ranks are on several nodes" if nodes > 1 else "these ranks are on one node")
        if (what, name) not in self._nccl.logged:
            self._nccl.logged.add((what, name))
            log.info("%s of device arrays by %s instead of %s: %s", what, instead, name, why)
        return Choice(instead, why=why)

    def _usual(self, what: str, nodes: int, ranks: int) -> Choice:
        """Return what suits where nothing was measured: NCCL, else each GPU's slice, else a schedule over all."""
        why = "no table has a row for such arrays"
        if not self.why_no_nccl:
            return Choice(NCCL, why=f"{why}; every rank has a GPU of its own")
        if nodes == 1 and self.reaches(nodes):
            return Choice("slices", why=f"{why}; ranks map each other's memory")
        return self._scheduled(what, nodes, ranks, why)

    def _scheduled(self, what: str, nodes: int, ranks: int, why: str) -> Choice:
        """Return a schedule between nodes, for each GPU's part, or else over all ranks."""
        if nodes > 1 and ranks > 1 and self.reaches(nodes):
            return Choice(f"leaders-{INSTEAD[what]}", why=f"{why}; each GPU carries its part between the nodes")
        return Choice(INSTEAD[what], why=f"{why}; {self.why_no_nccl}")

    def reaches(self, nodes: int) -> bool:
        """Return whether `slices`, or on several nodes leaders, can run. Collective at its first use."""
        return not self.why_no_peers or (nodes > 1 and (self.through_host or self.has_local_nccl))

    def joins_in_node(self, parts: Parts) -> bool:
        """Return whether a node can join such parts of a vector: through the host they must follow one another."""
        return not self.through_host or is_consecutive(parts)

    @property
    def memory(self) -> str:
        """Return what tables call the memory of the arrays: how MPI takes them makes a difference."""
        return DEVICE if self.direct else THROUGH_HOST

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

    def transport(
        self, numbers: str = "", spreads: bool = False
    ) -> DirectTransport | StagedTransport | DeviceCodecTransport:
        """Return the transport of one plan; with `numbers` a codec writes its messages, and rounds what it spreads."""
        made = self._moving()
        return DeviceCodecTransport(made, numbers, spreads) if numbers else made

    def _moving(self) -> DirectTransport | StagedTransport:
        """Return a transport that moves bytes as they are."""
        return DirectTransport(self.device) if self.direct else StagedTransport(self.device)

    def library(self, plan: LibraryPlan) -> DeviceLibraryPlan:
        """Return the library's own collective on device arrays."""
        return DeviceLibraryPlan(plan, self._moving(), self.direct)

    def slices(self, what: str, op: Operation | None, root: int, parts: Parts = ()) -> PeerPlan:
        """Return the plan in which each rank of the node joins its slice, or works on its `parts`."""
        return PeerPlan(self.local, self.device, what, op, root, parts)

    def nccl(self, what: str, op: Operation | None, root: int, parts: Parts = ()) -> NcclPlan:
        """Return NCCL's own collective."""
        return self._nccl_over("all", self.comm, what, op, root, parts)

    def _nccl_over(
        self, name: str, comm: MPI.Intracomm, what: str, op: Operation | None, root: int, parts: Parts
    ) -> NcclPlan:
        """Return NCCL's collective over the ranks of `comm`."""
        return NcclPlan(self._nccl.get(name, comm, self.device), what, op, root, comm.rank, comm.size, parts)

    def inside(self, what: str, op: Operation | None, root: int, parts: Parts, dtype: np.dtype) -> Plan:
        """Return a plan over the ranks of this node."""
        if self.through_host:
            chunk = max(1, DEVICE_CHUNK // dtype.itemsize)
            return through_host(self.local, self.device, what, op, root, parts, dtype, chunk)
        if self.has_local_nccl:
            return self._nccl_over("node", self.local, what, op, root, parts)
        return self.slices(what, op, root, parts)

    def leaders(
        self,
        what: str,
        op: Operation | None,
        root: Root,
        node: int,
        parts: Parts,
        between: Plan,
        block: Slice | None,
        dtype: np.dtype,
    ) -> HierarchyPlan:
        """Return the plan in which each rank of a node carries its part by `between`; this one is on `node`."""
        verb, is_at_root = VERBS[what], node == root.node
        into = out = None
        if verb.joins:
            into = self.inside("reduce_scatter", op and op._replace(divided=False), 0, parts, dtype)
        elif verb.has_root and is_at_root:
            into = self.inside("scatter", None, root.local, parts, dtype)
        if verb.spreads:
            out = self.inside("allgather", None, 0, parts, dtype)
        elif verb.has_root and is_at_root:
            out = self.inside("gather", None, root.local, parts, dtype)
        has_sum = verb.spreads or not verb.has_root or is_at_root
        has_result = verb.spreads or (is_at_root and self.local.rank == root.local)
        given = self.comm, self.device, into, between, out, op, parts[self.local.rank], self.comm.size, block
        return HierarchyPlan(*given, has_sum=has_sum, has_result=has_result)
