"""Communicator: the collectives over the ranks of an MPI communicator, by the algorithm that suits them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from collectives import tuning, window
from collectives.agreement import agree
from collectives.device.nccl import Groups
from collectives.errors import ArgumentError, DeviceFault
from collectives.group import Group
from collectives.maker import Call, PlanMaker, split
from collectives.node import Node
from collectives.operations import TYPES, operation
from collectives.plans import Plan
from collectives.tuning import Choice, Shape

if TYPE_CHECKING:
    from mpi4py import MPI

    from collectives.device.choice import DevicePlans
    from collectives.device.device import Device

MOST_CALLS = 1000  # whose plans are found at once
OWN = {"reduce": ("binomial", "chain"), "bcast": ("binomial", "chain"), "allreduce": ("halving", "ring")}
LARGE = 1 << 18  # bytes, from where on the second of these does what the library can't


class Communicator:
    """Reduce, broadcast and allreduce arrays, of numpy or all of CuPy, over the ranks of `comm`.

    A plan is made at the first call for an operation, size, root and kind of memory, when the ranks check that they
    agree; `check=True` has them check at each call. A plan keeps the arrays of its last call. Raise, on all ranks and
    before any data moves, ArgumentError, AlgorithmError or DisagreementError; the communicator stays usable.

    `group` says which ranks share a node, if MPI is not to be asked; `table`, what "auto" does; `device`, whose the
    device arrays are, if that is not CuPy's current GPU. `node` and `groups`, its windows and NCCL's communicators,
    are another's over the same ranks, who frees them.
    All methods are collective and called by one thread, in the same order on all ranks.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        table: tuning.Table | None = None,
        group: Group | None = None,
        node: Node | None = None,
        device: Device | None = None,
        groups: Groups | None = None,
    ):
        self.comm = comm.Dup()
        self.rank, self.size = comm.rank, comm.size
        self.group = group or Group.from_comm(self.comm)
        self._local = split(self.comm, self.group.nodes[self.rank])
        self.node, self._owns = Node(self._local, node), node is None
        self.table, self._network = table or tuning.shipped(), self.comm.bcast(tuning.network())
        self._plans: dict[tuple[Call, int], Plan] = {}
        self._last: dict[tuple, Plan] = {}  # by a call's arguments: the plan that it had
        self._given_device = device
        self._groups, self._owns_groups = groups or Groups(), groups is None
        self._maker = PlanMaker(self.comm, self._local, self.group, self.node, self._device_for, self._groups)

    def dup(self) -> Communicator:
        """Return another over the same ranks and windows, whose collectives can be under way beside this one's.

        Collective; so is its `free`, which leaves the windows to this one.
        """
        return Communicator(self.comm, self.table, self.group, self.node, self._given_device, self._groups)

    def empty(
        self, shape: int | tuple[int, ...], dtype: np.typing.DTypeLike = np.float32, device: str = "cpu"
    ) -> np.ndarray:
        """Return zeros in memory where collectives are fastest: one that the ranks of a node share. Collective.

        All ranks of a node ask for the same. The memory is theirs until `give_back` or `free`. With `device="cuda"`: a
        CuPy array on the current GPU. Raise ArgumentError, on all ranks, where one has no CuPy or GPU.
        """
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if device == "cpu":
            return self.node.empty(shape, np.dtype(dtype))
        self._raise_first(self.comm.allgather(_problem_of(lambda: self._device_for(device))))
        return self._device_for(device).zeros(shape, np.dtype(dtype))

    def reduce(
        self,
        send: np.ndarray,
        recv: np.ndarray | None = None,
        op: str = "sum",
        root: int = 0,
        algorithm: str = "auto",
        chain_size: int | None = None,
        chunk_bytes: int = 0,
        check: bool = False,
    ) -> None:
        """Reduce the ranks' `send` to the root's `recv`, without which it is done in place; others need none.

        `op` is sum, max, min or mean. `algorithm` is "auto", "mpi", "slices", "leaders-NAME", a schedule's name, or
        "nccl" for device arrays; `chain_size` its groups' ranks, `chunk_bytes` its messages' size (0: as tuned).
        """
        self._run(("reduce", op, root, algorithm, chain_size, chunk_bytes, id(send), id(recv)), send, recv, check)

    def allreduce(
        self,
        send: np.ndarray,
        recv: np.ndarray | None = None,
        op: str = "sum",
        algorithm: str = "auto",
        chain_size: int | None = None,
        chunk_bytes: int = 0,
        check: bool = False,
    ) -> None:
        """Reduce the ranks' `send` to every rank's `recv`, without which it is done in place; see `reduce`."""
        self._run(("allreduce", op, 0, algorithm, chain_size, chunk_bytes, id(send), id(recv)), send, recv, check)

    def bcast(
        self,
        array: np.ndarray,
        root: int = 0,
        algorithm: str = "auto",
        chain_size: int | None = None,
        chunk_bytes: int = 0,
        check: bool = False,
    ) -> None:
        """Copy the root's array, of any type, to the others'; see `reduce`."""
        self._run(("bcast", "", root, algorithm, chain_size, chunk_bytes, id(array), id(None)), array, None, check)

    def explain(self, what: str, nbytes: int, shared: bool = True) -> str:
        """Say what "auto" does with so many bytes, in a window or not, and why."""
        choice = self._choose(what, nbytes, shared)
        return f"{what} of {nbytes} bytes, {self.shape}: {choice}, {choice.why}"

    @property
    def device_plans(self) -> DevicePlans:
        """How device arrays travel here, and the device that they lie on. Collective when it is first asked for."""
        return self._maker.device_plans

    @property
    def shape(self) -> Shape:
        """How many nodes there are, and ranks on each, 0 where they differ; and what rank 0 sees between them."""
        nodes, each = self.group.shape
        return Shape(nodes, each, self._network if nodes > 1 else "")

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
        number: int = 0,
        staged: bool = False,
    ) -> Plan:
        """Return the plan of a collective, bound to these arrays; calls that are alike share one plan a `number`.

        A `staged` plan goes on now and then while its rank computes: "auto" then leaves out the MPI library's own.
        """
        given = send, recv
        algorithm = algorithm if chain_size is None else f"{algorithm}-{chain_size}"
        root = 0 if what == "allreduce" else root
        if what == "reduce" and self.rank != root:
            recv = None
        elif what != "bcast" and recv is None:
            recv = send
        problem = self._problem(what, send, recv, op, root)
        memory = memory_of(send)
        arrays = [array for array in (send, recv) if array is not None]
        held = not problem and memory == "host" and all(self.node.holds(array) for array in arrays)
        if not problem and send.dtype not in TYPES:
            send = _bytes(send)
        dtype, count = str(getattr(send, "dtype", type(send).__name__)), int(getattr(send, "size", 0))
        call = Call(what, op, root, count, dtype, algorithm, chunk_bytes, staged, held, problem, memory)
        plan = self._plans.get((call, number))
        if plan is None or check:
            shared = self._agree(call)
        if plan is None:
            plan = self._plans[call, number] = self._maker.make(call, self._choice(call, shared))
        plan.bind(send.reshape(-1), None if recv is None else recv.reshape(-1))
        plan.given = given
        return plan

    def agree(self, values: Mapping[str, str]) -> None:
        """Raise DisagreementError on every rank unless all ranks have the same `values`. Collective."""
        agree(self.comm, values)

    def forget(self) -> None:
        """Let go of all plans, and with them of the arrays that they keep."""
        for plan in self._plans.values():
            plan.free()
        self._plans.clear()
        self._last.clear()

    def has_room(self, nbytes: int) -> bool:
        """Say whether `empty` could give each rank so many bytes, as far as can be told on every node. Collective."""
        return all(self.comm.allgather(self.size == 1 or window.room() > 1.1 * nbytes * self.node.size))

    def give_back(self, *arrays: np.ndarray) -> None:
        """Free the memory of arrays from `empty`, which nothing may use afterwards, and forget all plans. Collective.

        Raise ArgumentError for other arrays.
        """
        self.forget()
        for array in arrays:
            if not on_device(array):
                self.node.give_back(array)

    def free(self) -> None:
        """Give back windows and communicators. Collective."""
        self.forget()
        if self._owns:
            self.node.free()
        if self._owns_groups:
            self._groups.free()
        self._maker.free()
        self._local.Free()
        self.comm.Free()

    def _run(self, call: tuple, send: np.ndarray, recv: np.ndarray | None, check: bool) -> None:
        """Run the plan of a call, found by `call` where these very arrays had one: small messages feel each step."""
        plan = self._last.get(call)
        if plan is None or plan.given[0] is not send or plan.given[1] is not recv or check:
            if len(self._last) == MOST_CALLS:
                self._last.clear()
            what, op, root, algorithm, chain_size, chunk_bytes = call[:-2]
            plan = self.plan(what, send, recv, op, root, algorithm, chain_size, chunk_bytes, check)
            self._last[call] = plan
        try:
            plan.run()
        except DeviceFault as error:
            raise error.located(f"{call[0]} of {send.nbytes} bytes") from None

    def _device_for(self, name: str = "cuda") -> Device:
        """Return the device that arrays of that name lie on. Raise ArgumentError where there is none."""
        if name != "cuda":
            raise ArgumentError(f"unknown device '{name}'; known devices: cpu cuda")
        if self._given_device is None:
            from collectives.device import cuda

            self._given_device = cuda.find()
        return self._given_device

    def _problem(self, what: str, send: Any, recv: Any, op: str, root: int) -> str:
        """Return why this rank can't take part, "" if it can."""
        try:
            if not 0 <= root < self.size:
                raise ArgumentError(f"root {root} is not one of {self.size} ranks")
            for name, array in (("send", send), ("recv", recv)):
                if array is not None:
                    written = name == "recv" or (what == "bcast" and self.rank != root)
                    _check_array(name, array, written, self._device_for if on_device(array) else None)
            if recv is not None and on_device(recv) != on_device(send):
                raise ArgumentError(f"recv is in {memory_of(recv)} memory, send in {memory_of(send)} memory")
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
        self._raise_first([problem for problem, _ in told])
        self.agree(call.described())
        return all(held for _, held in told)

    def _raise_first(self, problems: list[str]) -> None:
        """Raise ArgumentError for the first rank that has a problem."""
        if wrong := next(filter(None, problems), ""):
            where = "" if set(problems) == {wrong} else f"rank {problems.index(wrong)}: "
            raise ArgumentError(where + wrong)

    def _choice(self, call: Call, shared: bool) -> Choice:
        """Return how a call is done: as it says, or by the table."""
        if call.algorithm != "auto":
            return Choice(call.algorithm, call.chunk_bytes)
        choice = self._choose(call.what, call.nbytes, shared or call.memory == "device")
        if choice.algorithm == "mpi" and call.nbytes and (call.staged or call.is_half_sum):
            algorithm = OWN[call.what][call.nbytes >= LARGE]
            one_node = self.shape.nodes == 1 and (shared or self.node.has_peers)
            return Choice("slices" if one_node else algorithm)
        return choice

    def _choose(self, what: str, nbytes: int, shared: bool) -> Choice:
        """Return what the table says, as far as it can be done here."""
        choice = self.table.choose(what, self.shape, shared, nbytes)
        if choice.algorithm.startswith(("slices", "leaders")) and not (shared or self.node.has_peers):
            return Choice("mpi", why="processes here can't read each other's memory")
        return choice


def _bytes(array: np.ndarray) -> np.ndarray:
    """Return the bytes of an array, a view."""
    return array.reshape(-1).view(np.uint8)


def on_device(array: Any) -> bool:
    """Say whether something is an array in device memory."""
    return hasattr(array, "__cuda_array_interface__")


def memory_of(array: Any) -> str:
    """Return "host" or "device"."""
    return "device" if on_device(array) else "host"


def _problem_of(attempt: Callable[[], object]) -> str:
    """Return what ArgumentError an attempt raises, "" for none."""
    try:
        attempt()
    except ArgumentError as error:
        return str(error)
    return ""


def _check_array(name: str, array: Any, written: bool, device: Callable[[], Device] | None) -> None:
    """Raise ArgumentError for what is no array that can be sent, or written into, where it lies."""
    if device is None and not isinstance(array, np.ndarray):
        raise ArgumentError(f"{name} must be a numpy array, got {type(array).__name__}")
    if device is not None and not device().holds(array):
        raise ArgumentError(f"{name} must be a CuPy array on {device().name}, got {type(array).__name__}")
    if not array.flags.c_contiguous:
        raise ArgumentError(f"{name} must be contiguous, got shape {array.shape} with strides {array.strides}")
    if device is None and written and not array.flags.writeable:
        raise ArgumentError(f"{name} is read-only, but the result goes there")
