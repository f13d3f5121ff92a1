"""Making plans: choose the kind of plan for a checked call and its algorithm."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collectives.codecs import CodecTransport, depends_on_cuts
from collectives.errors import AlgorithmError
from collectives.execution.device.choice import DEVICE_CHUNK, INSTEAD, NCCL, DevicePlans
from collectives.execution.device.nccl import NcclCommunicators
from collectives.execution.device.plans import node_slices
from collectives.execution.execute import AHEAD, InFlight, sends_in_flight
from collectives.execution.library import LibraryPlan
from collectives.execution.node import NodeComm
from collectives.execution.node_plans import LeaderBlocksPlan, LeaderPlan, NodeBlocksPlan, NodePlan, Root
from collectives.execution.operations import OPERATIONS, Operation, is_half, operation
from collectives.execution.plans import Plan, SchedulePlan
from collectives.group import Group
from collectives.schedules.algorithms import DEPTH, LEADERS, OTHERS, Choice, make_schedule, order_for
from collectives.schedules.registry import find
from collectives.schedules.schedule import Schedule
from collectives.verbs import VERBS, Verb, block_of, bounds_of, even_bounds

if TYPE_CHECKING:
    from mpi4py import MPI

    from collectives.execution.device.device import Device
    from collectives.execution.transport import Transport

CHUNK = 60 << 10  # bytes: with its header below the 64 KiB up to which TCP transports send eagerly
TOGETHER = 1 << 20  # bytes of the chunks that an algorithm may have under way at a time, as far as it can


class Call(NamedTuple):
    """The key of a plan. All ranks have the same key, so that either all of them have the plan or none has."""

    what: str
    op: str
    root: int
    elements: int
    dtype: str
    algorithm: str
    chunk_bytes: int
    staged: bool = False  # whether it advances only now and then, while its ranks compute
    memory: str = "host"  # or "device"
    counts: tuple[int, ...] = ()  # the lengths of the ranks' blocks; () for nearly equal ones
    numbers: str = ""  # in which the elements travel; "" for their own

    def described(self) -> dict[str, str]:
        """Return what the ranks must agree on, by name."""
        return {
            "the operation": f"{self.what} {self.op}".strip(),
            "the root": str(self.root),
            "the memory of the arrays": self.memory,
            "the type": self.dtype,
            "the number of elements": str(self.elements),
            "the algorithm": f"{self.algorithm}, chunks of {self.chunk_bytes} bytes",
            "the numbers of messages": self.numbers or "their own",
            "the lengths of the blocks": ", ".join(map(str, self.counts)) or "nearly equal",
        }

    @property
    def verb(self) -> Verb:
        """Return the verb."""
        return VERBS[self.what]

    def operation(self) -> Operation | None:
        """Return the operation, None where nothing is joined."""
        return operation(self.op, np.dtype(self.dtype)) if self.verb.joins else None

    def bounds(self, size: int) -> tuple[int, ...]:
        """Return where the blocks of `size` ranks begin, and the end of the last one."""
        return bounds_of(self.counts) if self.counts else even_bounds(self.elements, size)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the array."""
        return self.elements * np.dtype(self.dtype).itemsize

    @property
    def is_half_sum(self) -> bool:
        """Return whether this reduces half precision, which MPI does not support."""
        return self.verb.joins and is_half(np.dtype(self.dtype))


class PlanMaker:
    """Makes plans over `comm`. `local` has the ranks of this node; `device()` returns the device of device arrays.

    With `through_host` these travel through pinned host memory alone.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        local: MPI.Intracomm,
        group: Group,
        node: NodeComm,
        device: Callable[[], Device],
        nccl: NcclCommunicators,
        through_host: bool = False,
    ):
        self.comm, self.local, self.group, self.node, self._device = comm, local, group, node, device
        self.nodes, self.ranks = group.shape
        self.cross: MPI.Intracomm | None = None  # of the ranks with this one's number on their nodes, once needed
        self._device_plans: DevicePlans | None = None
        self._nccl, self.through_host = nccl, through_host

    @property
    def device_plans(self) -> DevicePlans:
        """Return the maker of plans for device arrays. Collective at its first use."""
        if self._device_plans is None:
            given = self.comm, self.local, self._device(), self._nccl
            self._device_plans = DevicePlans(*given, through_host=self.through_host)
        return self._device_plans

    def free(self) -> None:
        """Free the communicator between nodes. Collective."""
        if self.cross is not None:
            self.cross.Free()
            self.cross = None

    def make(self, call: Call, choice: Choice) -> Plan:
        """Return a new plan. Raise AlgorithmError, on all ranks, for an unknown or unsuitable algorithm."""
        if call.memory == "device":
            return self._make_device(call, choice)
        op = call.operation()
        name, chunk_bytes = choice.algorithm, call.chunk_bytes or choice.chunk_bytes or CHUNK
        if call.numbers and call.nbytes:
            return self._coded(call, name, chunk_bytes, op)
        if name == "mpi" and call.nbytes and call.is_half_sum:
            raise AlgorithmError(
                f"algorithm 'mpi' can't {call.what} {call.dtype}, which MPI does not support; use another"
            )
        if name == "mpi" or not call.nbytes:
            return LibraryPlan(self.comm, call.what, op, call.root, np.dtype(call.dtype), call.bounds(self.comm.size))
        if name == "slices":
            if self.nodes > 1:
                raise AlgorithmError(f"algorithm 'slices' works inside one node, these ranks are on {self.nodes}")
            if call.verb.has_blocks:
                return NodeBlocksPlan(self.node, op, call.bounds(self.comm.size))
            return NodePlan(self.node, call.what, op, call.root)
        if name.startswith(LEADERS):
            return self._leaders(call, name.removeprefix(LEADERS), chunk_bytes, op)
        if name == NCCL:
            raise AlgorithmError("algorithm 'nccl' is for arrays on GPUs, these are in host memory; use another")
        return self._scheduled(call, name, chunk_bytes, op, call.root, self.comm, self.group)

    def _coded(self, call: Call, name: str, chunk_bytes: int, op: Operation | None) -> Plan:
        """Return the plan of a schedule whose messages have other numbers."""
        check_coded(call, name)
        transport = CodecTransport(call.numbers, _rounds_first(call))
        return self._scheduled(call, name, chunk_bytes, op, call.root, self.comm, self.group, transport)

    def device_choice(self, call: Call, choice: Choice) -> Choice:
        """Return what is done for device arrays, with the reason. Collective at its first use. Raise as `make` does."""
        given = self.nodes, self.ranks, np.dtype(call.dtype), call.elements, call.numbers
        choice = self.device_plans.choose(call.what, choice, *given)
        if call.numbers and call.elements and choice.algorithm.removeprefix(LEADERS) in OTHERS:
            raise AlgorithmError(_unable(choice.algorithm, call))
        return choice

    def _make_device(self, call: Call, choice: Choice) -> Plan:
        """Return a new plan for device arrays."""
        plans, dtype = self.device_plans, np.dtype(call.dtype)
        op = call.operation()
        if op is not None and op.name not in OPERATIONS:
            raise AlgorithmError(f"device arrays have no {op.name}; they have {' '.join(OPERATIONS)}")
        choice = self.device_choice(call, choice)
        parts = [[block_of(k, bounds)] for bounds in self._block_bounds(call) for k in range(self.comm.size)]
        if choice.algorithm == "mpi":
            return plans.library(LibraryPlan(self.comm, call.what, op, call.root, dtype))
        if choice.algorithm == "slices":
            return plans.slices(call.what, op, call.root, parts)
        if choice.algorithm == NCCL:
            return plans.nccl(call.what, op, call.root, parts)
        chunk = call.chunk_bytes or choice.chunk_bytes or DEVICE_CHUNK
        if choice.algorithm.startswith(LEADERS):
            return self._device_leaders(call, choice.algorithm.removeprefix(LEADERS), chunk, op)
        return self._device_schedule(call, choice.algorithm, chunk, op)

    def _device_schedule(self, call: Call, name: str, chunk_bytes: int, op: Operation | None) -> Plan:
        """Return the plan of a schedule over all ranks' device arrays."""
        given = (call, name, chunk_bytes, op, call.root, self.comm, self.group)
        return self._scheduled(*given, transport=self.device_plans.transport(call.numbers, _rounds_first(call)))

    def _block_bounds(self, call: Call) -> list[tuple[int, ...]]:
        """Return the bounds of the ranks' blocks, none for a collective without blocks."""
        return [call.bounds(self.comm.size)] if call.verb.has_blocks else []

    def _device_leaders(self, call: Call, name: str, chunk_bytes: int, op: Operation | None) -> Plan:
        """Return the plan in which each rank of a node carries its part of the device array between the nodes."""
        root, cross, plans, local = self._root(call, name), self._crossing(), self.device_plans, self.local
        if name == "mpi" and call.is_half_sum:
            name = INSTEAD[call.what]
        block, parts = None, node_slices(call.elements, local.size)
        for bounds in self._block_bounds(call):
            block = block_of(self.comm.rank, bounds)
            parts = [[block_of(rank, bounds) for rank in self._with_number(k)] for k in range(local.size)]
        if not plans.joins_in_node(parts):
            return self._device_schedule(call, name, chunk_bytes, op)
        lengths = tuple(stop - start for start, stop in parts[local.rank])
        among = call._replace(elements=sum(lengths), counts=lengths if block else ())
        inner = op and op._replace(divided=False)
        given = (among, name, chunk_bytes, inner, root.node, cross, self.group.of_nodes())
        between = self._scheduled(*given, transport=plans.transport(call.numbers, _rounds_first(call)))
        if isinstance(between, LibraryPlan):
            between = plans.library(between)
        return plans.leaders(call.what, op, root, cross.rank, parts, between, block, np.dtype(call.dtype))

    def _scheduled(
        self,
        call: Call,
        name: str,
        chunk_bytes: int,
        op: Operation | None,
        root: int,
        comm: MPI.Intracomm,
        group: Group,
        transport: Transport | None = None,
    ) -> Plan:
        """Return the plan of a schedule over the ranks of `comm`."""
        if name == "mpi":
            return LibraryPlan(comm, call.what, op, root, np.dtype(call.dtype), call.bounds(comm.size))
        chunk = max(1, chunk_bytes // np.dtype(call.dtype).itemsize)
        depth = max(DEPTH, min(find(name).most_depth, TOGETHER // chunk_bytes))
        in_flight = InFlight(AHEAD, max(depth, sends_in_flight(chunk_bytes))) if depth > DEPTH else None
        blockwise = depends_on_cuts(call.numbers)
        schedule = _schedule(call.what, name, group, call.elements, chunk, root, call.counts, depth, blockwise)
        return SchedulePlan(schedule, comm, op, transport, in_flight)

    def _leaders(self, call: Call, name: str, chunk_bytes: int, op: Operation | None) -> Plan:
        """Return the plan in which each rank of a node carries its slice between the nodes."""
        root, cross = self._root(call, name), self._crossing()
        inner = op._replace(divided=False) if op else None
        group = self.group.of_nodes()
        if call.verb.has_blocks:
            bounds, local = call.bounds(self.comm.size), self.local.rank
            parts = [block_of(rank, bounds) for rank in self._with_number(local)]
            counts = tuple(stop - start for start, stop in parts)
            among = call._replace(elements=sum(counts), counts=counts)
            between = self._scheduled(among, name, chunk_bytes, inner, 0, cross, group)
            return LeaderBlocksPlan(self.node, cross, between, op, parts, call.elements)
        start, stop = self.node.slice(call.elements)
        among = call._replace(elements=stop - start)
        between = self._scheduled(among, name, chunk_bytes, inner, root.node, cross, group)
        return LeaderPlan(self.node, cross, between, call.what, op, root)

    def _root(self, call: Call, name: str) -> Root:
        """Return the root's node and its rank there. Raise AlgorithmError on all ranks where nodes differ in ranks."""
        if not self.ranks:
            raise AlgorithmError(f"algorithm '{LEADERS}{name}' needs the same number of ranks on every node")
        nodes = self.group.nodes
        return Root(nodes[call.root], nodes[: call.root].count(nodes[call.root]))

    def _with_number(self, local: int) -> list[int]:
        """Return the ranks with this number on their nodes, in the order of the nodes."""
        nodes = self.group.nodes
        found = [rank for rank, node in enumerate(nodes) if nodes[:rank].count(node) == local]
        return sorted(found, key=lambda rank: nodes[rank])

    def _crossing(self) -> MPI.Intracomm:
        """Return the communicator of the ranks with this rank's number on their nodes, in the order of the nodes."""
        if self.cross is None:
            self.cross = split(self.comm, self.local.rank, self.group.nodes[self.comm.rank])
        return self.cross


def _rounds_first(call: Call) -> bool:
    """Return whether sums are spread, so that the rank which has them first rounds them too."""
    return call.verb.spreads and not call.verb.has_root


def check_coded(call: Call, name: str) -> None:
    """Raise AlgorithmError for an algorithm that can't send a call's numbers from host memory."""
    if call.numbers and call.nbytes and (name in OTHERS or name.startswith(LEADERS)):
        raise AlgorithmError(_unable(name, call))


def _unable(name: str, call: Call) -> str:
    """Return the error of an algorithm whose messages can't have other numbers."""
    return f"algorithm '{name}' can't send {call.numbers}; schedules can, such as ring and chain"


@lru_cache(maxsize=16)
def _schedule(
    what: str,
    name: str,
    group: Group,
    elements: int,
    chunk: int,
    root: int,
    counts: tuple[int, ...],
    depth: int,
    blockwise: bool,
) -> Schedule:
    """Return the schedule over a group; plans of equal calls, such as those of buckets of one length, share one."""
    order = order_for(name, group, root)
    how = {"order": order, "depth": depth, "counts": counts or None, "blockwise": blockwise}
    return make_schedule(what, name, group.size, elements, chunk=chunk, root=root, **how)  # type: ignore[arg-type]


def split(comm: MPI.Intracomm, color: int, key: int = 0) -> MPI.Intracomm:
    """Return the communicator of the ranks with this color, ordered by key, then by rank."""
    return comm.Split(color, key)  # type: ignore[return-value]
