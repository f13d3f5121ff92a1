"""Communicator: the collectives over the ranks of an MPI communicator, by the algorithm that suits them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from collectives import tuning
from collectives.agreement import agree
from collectives.algorithms import make_schedule
from collectives.errors import AlgorithmError, ArgumentError
from collectives.group import Group
from collectives.node import Node
from collectives.operations import TYPES, Operation, operation
from collectives.plans import LeaderPlan, LibraryPlan, NodePlan, Plan, Root, SchedulePlan
from collectives.tuning import Choice, Shape

if TYPE_CHECKING:
    from mpi4py import MPI

CHUNK, TAGS = 1 << 16, 16  # bytes; tags of a schedule


class Call(NamedTuple):
    """What a plan is made for: all that must be the same on all ranks, but the last two."""

    what: str
    op: str
    root: int
    elements: int
    dtype: str
    algorithm: str
    chunk_bytes: int
    held: bool = False  # do this rank's arrays lie in windows?
    problem: str = ""  # why this rank can't take part

    def described(self) -> dict[str, str]:
        """Return what the ranks must agree on."""
        return {
            "the operation": f"{self.what} {self.op}".strip(),
            "the root": str(self.root),
            "the type": self.dtype,
            "the number of elements": str(self.elements),
            "the algorithm": f"{self.algorithm}, chunks of {self.chunk_bytes} bytes",
        }


class Communicator:
    """Reduce, broadcast and allreduce flat numpy arrays over the ranks of `comm`.

    A plan is made at the first call for an operation, size, root and kind of memory, when the ranks check that they
    agree; `check=True` has them check at each call. A plan keeps the arrays of its last call. Raise, on all ranks and
    before any data moves, ArgumentError, AlgorithmError or DisagreementError; the communicator stays usable.

    `group` says which ranks share a node, if MPI is not to be asked; `table`, what "auto" does.
    All methods are collective and called by one thread, in the same order on all ranks.
    """

    def __init__(self, comm: MPI.Intracomm, table: tuning.Table | None = None, group: Group | None = None):
        self.comm = comm.Dup()
        self.rank, self.size = comm.rank, comm.size
        self.group = group or Group.from_comm(self.comm)
        self._local = _split(self.comm, self.group.nodes[self.rank])
        self.node = Node(self._local)
        self.table = table or tuning.shipped()
        self._cross: MPI.Intracomm | None = None
        self._plans: dict[tuple[Call, int], Plan] = {}

    def empty(self, shape: int | tuple[int, ...], dtype: np.typing.DTypeLike = np.float32) -> np.ndarray:
        """Return zeros in memory that the ranks of a node share, where collectives are fastest. Collective.

        All ranks of a node ask for the same. The memory is theirs until `give_back` or `free`.
        """
        return self.node.empty((shape,) if isinstance(shape, int) else tuple(shape), np.dtype(dtype))

    def reduce(
        self, send: np.ndarray, recv: np.ndarray | None = None, op: str = "sum", root: int = 0, **how: object
    ) -> None:
        """Reduce the ranks' `send` to the root's `recv`, without which it is done in place; others need none.

        `op` is sum, max, min or mean. `how`: algorithm ("auto", "mpi", "slices", "leaders-NAME", or a schedule's name),
        chain_size, chunk_bytes, check.
        """
        self._run("reduce", send, recv, op, root, **how)

    def allreduce(self, send: np.ndarray, recv: np.ndarray | None = None, op: str = "sum", **how: object) -> None:
        """Reduce the ranks' `send` to every rank's `recv`, without which it is done in place."""
        self._run("allreduce", send, recv, op, 0, **how)

    def bcast(self, array: np.ndarray, root: int = 0, **how: object) -> None:
        """Copy the root's array, of any type, to the others'."""
        self._run("bcast", array, None, "", root, **how)

    def explain(self, what: str, nbytes: int, shared: bool = True) -> str:
        """Say what "auto" does with so many bytes, in a window or not, and why."""
        choice = self._choose(what, nbytes, shared)
        return f"{what} of {nbytes} bytes, {self.shape}: {choice.algorithm}, {choice.why}"

    @property
    def shape(self) -> Shape:
        """How many nodes there are, and ranks on each; 0 ranks where the nodes have different numbers."""
        ranks = Counter(self.group.nodes)
        return Shape(len(ranks), self.group.nodes.count(0) if len(set(ranks.values())) == 1 else 0)

    def plan(
        self,
        what: str,
        send: np.ndarray,
        recv: np.ndarray | None = None,
        op: str = "sum",
        root: int = 0,
        algorithm: str = "auto",
        chain_size: int | None = None,
        chunk_bytes: int = 0,
        check: bool = False,
        tag: int = 0,
    ) -> Plan:
        """Return the plan of a collective, bound to these arrays; `tag` sets apart those that run side by side."""
        algorithm = algorithm if chain_size is None else f"{algorithm}-{chain_size}"
        if what == "reduce" and self.rank != root:
            recv = None
        elif what != "bcast" and recv is None:
            recv = send
        problem = self._problem(what, send, recv, op, root)
        held = not problem and all(self.node.holds(array) for array in (send, recv) if array is not None)
        if not problem and send.dtype not in TYPES:
            send = _bytes(send)
        dtype, count = str(getattr(send, "dtype", type(send).__name__)), int(getattr(send, "size", 0))
        call = Call(what, op, root, count, dtype, algorithm, chunk_bytes, held, problem)
        plan = self._plans.get((call, tag))
        if plan is None or check:
            shared = self._agree(call)
        if plan is None:
            plan = self._plans[call, tag] = self._make(call, shared, tag)
        plan.bind(send.reshape(-1), None if recv is None else recv.reshape(-1))
        return plan

    def forget(self) -> None:
        """Let go of all plans, and with them of the arrays that they keep."""
        self._plans.clear()

    def give_back(self, *arrays: np.ndarray) -> None:
        """Free the memory of arrays from `empty`, which nothing may use afterwards, and forget all plans. Collective.

        Raise ArgumentError for other arrays.
        """
        self.forget()
        for array in arrays:
            self.node.give_back(array)

    def free(self) -> None:
        """Give back windows and communicators. Collective."""
        self._plans.clear()
        self.node.free()
        for comm in (self._cross, self._local, self.comm):
            if comm is not None:
                comm.Free()

    def _run(self, what: str, send: np.ndarray, recv: np.ndarray | None, op: str, root: int, **how) -> None:
        self.plan(what, send, recv, op, root, **how).run()

    def _problem(self, what: str, send: Any, recv: Any, op: str, root: int) -> str:
        """Return why this rank can't take part, "" if it can."""
        try:
            if not 0 <= root < self.size:
                raise ArgumentError(f"root {root} is not one of {self.size} ranks")
            for name, array in (("send", send), ("recv", recv)):
                if array is not None:
                    _check_array(name, array, written=name == "recv" or (what == "bcast" and self.rank != root))
            if recv is not None and (recv.dtype, recv.size) != (send.dtype, send.size):
                raise ArgumentError(f"recv has {recv.size} of {recv.dtype}, send {send.size} of {send.dtype}")
            if what != "bcast":
                operation(op, send.dtype)
        except ArgumentError as error:
            return str(error)
        return ""

    def _agree(self, call: Call) -> bool:
        """Raise on all ranks what is wrong on any; return whether all have their arrays in windows. Collective."""
        told = self.comm.allgather((call.problem, call.held))
        problems = [problem for problem, _ in told]
        if wrong := next(filter(None, problems), ""):
            where = "" if set(problems) == {wrong} else f"rank {problems.index(wrong)}: "
            raise ArgumentError(where + wrong)
        agree(self.comm, call.described())
        return all(held for _, held in told)

    def _choose(self, what: str, nbytes: int, shared: bool) -> Choice:
        choice = self.table.choose(what, self.shape, shared, nbytes)
        if choice.algorithm.startswith(("slices", "leaders")) and not (shared or self.node.has_peers):
            return Choice("mpi", why="processes here can't read each other's memory")
        return choice

    def _make(self, call: Call, shared: bool, tag: int) -> Plan:
        """Return a new plan. Raise AlgorithmError, on all ranks, for an algorithm that is unknown or not for this."""
        nbytes = call.elements * np.dtype(call.dtype).itemsize
        choice = Choice(call.algorithm, call.chunk_bytes)
        if call.algorithm == "auto":
            choice = self._choose(call.what, nbytes, shared)
        op = None if call.what == "bcast" else operation(call.op, np.dtype(call.dtype))
        name, chunk_bytes = choice.algorithm, call.chunk_bytes or choice.chunk_bytes or CHUNK
        if name == "mpi" or not nbytes:
            return LibraryPlan(self.comm, call.what, op, call.root, np.dtype(call.dtype))
        if name == "slices":
            if self.shape.nodes > 1:
                raise AlgorithmError(f"algorithm 'slices' works inside one node, these ranks are on {self.shape.nodes}")
            return NodePlan(self.node, call.what, op, call.root)
        if name.startswith("leaders-"):
            return self._leaders(call, name.removeprefix("leaders-"), chunk_bytes, op, tag)
        return self._scheduled(call, name, chunk_bytes, op, call.elements, call.root, self.comm, self.group, tag)

    def _scheduled(
        self,
        call: Call,
        name: str,
        chunk_bytes: int,
        op: Operation | None,
        count: int,
        root: int,
        comm: MPI.Intracomm,
        group: Group,
        tag: int,
    ) -> Plan:
        """Return the plan of a schedule over the ranks of `comm`."""
        if name == "mpi":
            return LibraryPlan(comm, call.what, op, root, np.dtype(call.dtype))
        order = group.round_robin() if name == "halving" else group.order(root)
        chunk = max(1, chunk_bytes // np.dtype(call.dtype).itemsize)
        schedule = make_schedule(call.what, name, group.size, count, chunk=chunk, root=root, order=order)
        return SchedulePlan(schedule, comm, op, tag * TAGS)

    def _leaders(self, call: Call, name: str, chunk_bytes: int, op: Operation | None, tag: int) -> Plan:
        """Return the plan in which each rank of a node carries its slice between the nodes."""
        if not self.shape.ranks:
            raise AlgorithmError(f"algorithm 'leaders-{name}' needs the same number of ranks on every node")
        local, nodes = self._local.rank, self.group.nodes
        if self._cross is None:
            self._cross = _split(self.comm, local)
        root = Root(nodes[call.root], nodes[: call.root].count(nodes[call.root]))
        start, stop = self.node.slice(call.elements)
        inner = op._replace(divided=False) if op else None
        group = Group.uniform(self.shape.nodes)
        between = self._scheduled(call, name, chunk_bytes, inner, stop - start, root.node, self._cross, group, tag)
        return LeaderPlan(self.node, self._cross, between, call.what, op, root)


def _bytes(array: np.ndarray) -> np.ndarray:
    """Return the bytes of an array, a view."""
    return array.reshape(-1).view(np.uint8)


def _split(comm: MPI.Intracomm, color: int) -> MPI.Intracomm:
    """Return the communicator of the ranks with this one's color."""
    return comm.Split(color, comm.rank)  # type: ignore[return-value]


def _check_array(name: str, array: Any, written: bool) -> None:
    """Raise ArgumentError for what is no array that can be sent, or written into, where it lies."""
    if not isinstance(array, np.ndarray):
        raise ArgumentError(f"{name} must be a numpy array, got {type(array).__name__}")
    if not array.flags.c_contiguous:
        raise ArgumentError(f"{name} must be contiguous, got shape {array.shape} with strides {array.strides}")
    if written and not array.flags.writeable:
        raise ArgumentError(f"{name} is read-only, but the result goes there")
