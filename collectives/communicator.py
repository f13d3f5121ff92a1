"""Communicator: collectives over the ranks of an MPI communicator, by the algorithm that suits them."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from collectives import tuning
from collectives.agreement import agree, end_job
from collectives.arguments import check_array, problem_of
from collectives.errors import ArgumentError, CollectiveError, DeviceFault
from collectives.execution import window
from collectives.execution.device.choice import NCCL
from collectives.execution.device.nccl import NcclCommunicators
from collectives.execution.maker import Call, PlanMaker, split
from collectives.execution.node import NodeComm
from collectives.execution.operations import TYPES, operation
from collectives.execution.plans import Plan, kept
from collectives.group import Group
from collectives.loss import noticing
from collectives.revocable import Revocable
from collectives.schedules.algorithms import LEADERS, Choice, check_algorithm, with_chain_size
from collectives.schedules.registry import VERBS
from collectives.supernodes import Supernodes, as_text, describe_crossing, find_supernodes
from collectives.tuning.table import Shape

if TYPE_CHECKING:
    from mpi4py import MPI

    from collectives.execution.device.choice import DevicePlans
    from collectives.execution.device.device import Device

T = TypeVar("T")
CallArguments = tuple[str, str, int, str, int | None, int, int, int]  # what, op, root, how, and ids of the arrays
MOST_CALLS = 1000  # calls whose plans are cached


class Communicator(Revocable):
    """Reduce, broadcast and allreduce arrays of NumPy or CuPy over the ranks of `comm`.

    All methods are collective and called by one thread, in the same order on all ranks, unless their text says
    otherwise. The arrays stay the caller's; a plan keeps references to those of its last calls (8, or 1 GiB).

    The first call with a given operation, size, type, root and algorithm makes a plan. There the ranks check that they
    agree, and rank 0 chooses what "auto" does, as suits the memory of the arrays; a `dup` chooses again. Later calls
    run the plan and check nothing across ranks; `check=True` checks again. An invalid array in such a later call ends
    the job with one line, since other ranks already wait.

    - `comm`: MPI communicator; it is duplicated.
    - `table`: rank 0's table for "auto"; the shipped one by default.
    - `group`: nodes and supernodes of the ranks; MPI is asked by default.
    - `node`, `nccl`: shared windows and NCCL communicators of another Communicator over the same ranks, which frees
      them.
    - `device`: the device of device arrays, CuPy's current GPU by default. With `through_host` these travel through
      pinned host memory alone: no GPU then waits for another process.
    - `supernodes`: hosts of each supernode, a list of lists, a pattern or "slurm"; see `collectives.supernodes`.

    Raise, on all ranks and before any data moves, ArgumentError for an invalid argument, AlgorithmError for an unknown
    algorithm, DisagreementError where the ranks differ. The communicator stays usable. Where MPI tolerates faults, all
    methods raise RankLostError once a rank is lost: see `collectives.loss`.
    """

    @noticing
    def __init__(
        self,
        comm: MPI.Intracomm,
        table: tuning.Table | None = None,
        group: Group | None = None,
        node: NodeComm | None = None,
        device: Device | None = None,
        nccl: NcclCommunicators | None = None,
        supernodes: Supernodes = "",
        through_host: bool = False,
    ):
        super().__init__()
        self.comm, self.rank, self.size, self.table = comm.Dup(), comm.rank, comm.size, table
        self._on_rank_0(self._take_table)
        self.agree({"the group": str(group), "the supernodes": as_text(supernodes)})
        self.group = group or Group.from_comm(self.comm)
        if supernodes:
            self.group = find_supernodes(self.comm, self.group, supernodes)
        self._local = split(self.comm, self.group.nodes[self.rank])
        self.node, self._owns = NodeComm(self._local, node), node is None
        networks, peers = zip(*self.comm.allgather((tuning.network(), self.node.has_peers)), strict=True)
        self._network, self.has_peers = networks[0], all(peers)
        self._plans: dict[tuple[Call, int], Plan] = {}  # the same keys on all ranks
        self._last: dict[CallArguments, CachedCall] = {}  # by a call's arguments
        self._calls: defaultdict[Plan, deque[CallArguments]] = defaultdict(deque)  # each plan's keys in `_last`
        self._given_device, self._nccl, self._owns_nccl = device, nccl or NcclCommunicators(), nccl is None
        over = self.comm, self._local, self.group, self.node
        self._maker = PlanMaker(*over, self._device_for, self._nccl, through_host)

    @staticmethod
    def now() -> float:
        """Return the seconds of the clock by which its messages are timed."""
        return time.perf_counter()

    def dup(self) -> Communicator:
        """Return another communicator over the same ranks and windows, for collectives that run beside this one's.

        Collective. Its `free` is collective too, and leaves the windows to this communicator.
        """
        given = self.comm, self.table, self.group, self.node, self._given_device, self._nccl, ""
        other = Communicator(*given, self._maker.through_host)
        self._dups.add(other)
        return other

    @noticing
    def empty(
        self, shape: int | tuple[int, ...], dtype: np.typing.DTypeLike = np.float32, device: str = "cpu"
    ) -> np.ndarray:
        """Return an array of zeros in the memory where collectives are fastest.

        On the CPU that is a window which the ranks of a node share; the memory stays valid until `give_back` or `free`.
        With `device="cuda"` it is a CuPy array on the current GPU. All ranks of a node pass the same shape and type.
        Raise ArgumentError on all ranks for an unknown device, and where a rank has no CuPy or no GPU.
        """
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if device == "cpu":
            return self.node.empty(shape, np.dtype(dtype))
        self._raise_first(self.comm.allgather(problem_of(lambda: self._device_for(device))))
        array: np.ndarray = self._device_for(device).zeros(shape, np.dtype(dtype))
        return array

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
        """Reduce the ranks' `send` into the root's `recv`.

        Without `recv` the root's result replaces its `send`. Other ranks need no `recv`; theirs is not written.

        - `send`: contiguous array of float16, float32, float64, int32 or int64; the same size and type on all ranks.
        - `recv`: array of that size and type, in the same kind of memory.
        - `op`: "sum", "max", "min" or "mean".
        - `algorithm`: "auto", "mpi", "slices", "nccl" (device arrays), a schedule's name, or "leaders-NAME".
        - `chain_size`: ranks in each group of a hierarchy, if the name has none: "cb" and 8 are "cb-8".
        - `chunk_bytes`: bytes in each message of a schedule; 0 takes the table's.
        - `check`: compare the arguments of all ranks again.
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
        """Reduce the ranks' `send` into every rank's `recv`, or in place without it; see `reduce` for the arguments."""
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
        """Copy the root's `array`, of any type, into the other ranks'; see `reduce` for the arguments."""
        self._run(("bcast", "", root, algorithm, chain_size, chunk_bytes, id(array), id(None)), array, None, check)

    @noticing
    def explain(self, what: str, nbytes: int, shared: bool = True, algorithm: str = "auto") -> str:
        """Return a sentence: what "auto" does with `nbytes` bytes, why, and how many bytes cross supernodes.

        `shared` is whether the arrays are from `empty`. Collective. Raise ArgumentError for an unknown collective,
        AlgorithmError for an unknown algorithm.
        """
        _check_verb(what)
        check_algorithm(what, algorithm)

        def say() -> str:
            choice = self._choose(what, nbytes, shared) if algorithm == "auto" else Choice(algorithm, why="as asked")
            name, group = choice.algorithm, self.group
            if name.startswith(LEADERS):
                name, group = name.removeprefix(LEADERS), group.of_nodes()
            scheduled = len(set(group.supernodes)) > 1 and name not in ("mpi", "slices", NCCL)
            crossing = f"; {describe_crossing(what, name, nbytes, group)}" if scheduled else ""
            return f"{what} of {nbytes} bytes, {self.shape}: {choice}, {choice.why}{crossing}"

        return self._on_rank_0(say)

    @property
    def device_plans(self) -> DevicePlans:
        """Return the maker of plans for device arrays; it holds the device. Collective at its first use."""
        return self._maker.device_plans

    @property
    def shape(self) -> Shape:
        """Return the numbers of nodes and of ranks on each (0 where these differ), and the network that rank 0 sees."""
        nodes, each = self.group.shape
        return Shape(nodes, each, self._network if nodes > 1 else "")

    @noticing
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
        """Return the plan of a collective, bound to these arrays. Equal calls share one plan for each `number`.

        `staged` says that the plan advances only now and then, while its rank computes. "auto" then leaves out the MPI
        library's own collectives. The other arguments are those of `reduce`.
        """
        algorithm = with_chain_size(algorithm, chain_size)
        root = 0 if what == "allreduce" else root
        if what == "reduce" and self.rank != root:
            recv = None
        elif what != "bcast" and recv is None:
            recv = send
        problem = self._problem(what, send, recv, op, root)
        if not problem and send.dtype not in TYPES:
            send = _bytes(send)
        call = Call(what, op, root, *_content(send), algorithm, chunk_bytes, staged, memory_of(send))
        plan = self._plans.get((call, number))
        if problem and not check and self._others_may_run(call, number, send):
            end_job(self.comm, f"rank {self.rank}: {what}: {problem}")
        if plan is None or check:
            arrays = [array for array in (send, recv) if array is not None]
            held = not problem and call.memory == "host" and all(self.node.holds(array) for array in arrays)
            shared = self._agree(call, problem, held)
        if plan is None:
            choice = self._on_rank_0(lambda: self._choice(call, shared))
            plan = self._plans[call, number] = self._maker.make(call, choice)
        plan.bind(send.reshape(-1), None if recv is None else recv.reshape(-1))
        return plan

    @noticing
    def agree(self, values: Mapping[str, str]) -> None:
        """Raise DisagreementError on every rank unless all ranks have the same `values`. Collective."""
        agree(self.comm, values)

    def forget(self) -> None:
        """Free all plans and drop the arrays that they keep."""
        for plan in self._plans.values():
            plan.free()
        self._plans.clear()
        self._forget_calls()

    def _forget_calls(self) -> None:
        """Empty the cache of calls."""
        self._last.clear()
        self._calls.clear()

    @noticing
    def has_room(self, nbytes: int) -> bool:
        """Return whether each node has shared memory for `nbytes` a rank, as far as it reports. Collective."""
        return all(self.comm.allgather(self.size == 1 or window.room() > 1.1 * nbytes * self.node.size))

    @noticing
    def give_back(self, *arrays: np.ndarray) -> None:
        """Free the memory of arrays that `empty` returned, and all plans. Collective.

        The arrays must not be used afterwards. Raise ArgumentError for an array from elsewhere.
        """
        self.forget()
        for array in arrays:
            if not on_device(array):
                self.node.give_back(array)

    @noticing
    def free(self, windows: bool = True) -> None:
        """Free plans, windows and communicators. Collective.

        With `windows=False`, the same on all ranks, the windows stay until MPI ends, for arrays that are still in use.
        """
        self.forget()
        if self._owns and windows:
            self.node.free()
        if self._owns_nccl:
            self._nccl.free()
        self._maker.free()
        self._local.Free()
        self.comm.Free()

    def _run(self, call: CallArguments, send: np.ndarray, recv: np.ndarray | None, check: bool) -> None:
        """Run the plan of a call. The same arrays find it in the cache: short messages feel every step here."""
        known = self._last.get(call)
        if known is None or known.send is not send or known.recv is not recv or check:
            known = self._know(call, send, recv, check)
        plan = known.plan
        if plan.send is not known.bound_send or plan.recv is not known.bound_recv:
            plan.bind(known.bound_send, known.bound_recv)
        try:
            plan.run()
        except DeviceFault as error:
            raise error.located(f"{call[0]} of {send.nbytes} bytes") from None

    def _know(self, call: CallArguments, send: np.ndarray, recv: np.ndarray | None, check: bool) -> CachedCall:
        """Find a call's plan and cache it, in place of the plan's oldest calls."""
        what, op, root, algorithm, chain_size, chunk_bytes = call[:-2]
        plan = self.plan(what, send, recv, op, root, algorithm, chain_size, chunk_bytes, check)
        if len(self._last) >= MOST_CALLS:
            self._forget_calls()
        self._last[call] = known = CachedCall(plan, send, recv, plan.send, plan.recv)
        calls = self._calls[plan]
        calls.append(call)
        while len(calls) > kept(plan.send.nbytes):
            self._last.pop(calls.popleft(), None)
        return known

    def _device_for(self, name: str = "cuda") -> Device:
        """Return the device for arrays on `name`. Raise ArgumentError where there is none."""
        if name != "cuda":
            raise ArgumentError(f"unknown device '{name}'; known devices: cpu cuda")
        if self._given_device is None:
            from collectives.execution.device import cuda

            self._given_device = cuda.find()
        return self._given_device

    def _problem(self, what: str, send: Any, recv: Any, op: str, root: int) -> str:
        """Return why this rank's arguments are invalid, "" if they are valid."""
        try:
            _check_verb(what)
            if not 0 <= root < self.size:
                raise ArgumentError(f"root {root} is not one of {self.size} ranks")
            for name, array in (("send", send), ("recv", recv)):
                if array is not None:
                    written = name == "recv" or (what == "bcast" and self.rank != root)
                    check_array(name, array, written, self._device_for if on_device(array) else None)
            if recv is not None and on_device(recv) != on_device(send):
                raise ArgumentError(f"recv is in {memory_of(recv)} memory, send in {memory_of(send)} memory")
            if recv is not None and (recv.dtype, recv.size) != (send.dtype, send.size):
                raise ArgumentError(f"recv has {recv.size} of {recv.dtype}, send {send.size} of {send.dtype}")
            if what != "bcast":
                operation(op, send.dtype)
        except ArgumentError as error:
            return str(error)
        return ""

    def _others_may_run(self, call: Call, number: int, send: Any) -> bool:
        """Return whether other ranks may run a plan for a call that is invalid here; then they wait for this rank."""
        if self.size == 1:
            return False
        if hasattr(send, "dtype"):
            return (call, number) in self._plans
        alike = (  # a list, say, has no number of elements, type or memory
            known._replace(elements=call.elements, dtype=call.dtype, memory=call.memory)
            for known, other in self._plans
            if other == number
        )
        return call in alike

    def _agree(self, call: Call, problem: str, held: bool) -> bool:
        """Raise on all ranks what is wrong on any; return whether all ranks' arrays are in windows. Collective."""
        gathered = self.comm.allgather((problem, held))
        self._raise_first([problem for problem, _ in gathered])
        self.agree(call.described())
        return all(held for _, held in gathered)

    def _take_table(self) -> None:
        """Take the table that COLLECTIVES_TABLE names, or the shipped one, where none was given."""
        self.table = self.table or tuning.shipped()

    def _on_rank_0(self, work: Callable[[], T]) -> T:
        """Return rank 0's result on all ranks, since other ranks' tables may differ; raise its error on all ranks."""
        found: tuple[T | None, CollectiveError | None] = None, None
        if self.rank == 0:
            try:
                found = work(), None
            except CollectiveError as error:
                found = None, error
        received: tuple[T, CollectiveError | None] = self.comm.bcast(found)
        if received[1] is not None:
            raise received[1]
        return received[0]

    def _raise_first(self, problems: list[str]) -> None:
        """Raise ArgumentError for the first rank that has a problem."""
        if wrong := next(filter(None, problems), ""):
            where = "" if set(problems) == {wrong} else f"rank {problems.index(wrong)}: "
            raise ArgumentError(where + wrong)

    def _choice(self, call: Call, shared: bool) -> Choice:
        """Return the algorithm of a call: the one it names, or the table's."""
        if call.algorithm != "auto":
            return Choice(call.algorithm, call.chunk_bytes)
        choice = self._choose(call.what, call.nbytes, shared or call.memory == "device")
        if choice.algorithm == "mpi" and call.nbytes and (call.staged or call.is_half_sum):
            one_node = self.shape.nodes == 1 and (shared or self.has_peers)
            return Choice("slices" if one_node else tuning.instead(call.what, call.nbytes))
        return choice

    def _choose(self, what: str, nbytes: int, shared: bool) -> Choice:
        """Return what rank 0's table says, as far as these processes can do it."""
        assert self.table is not None
        choice = self.table.choose(what, self.shape, shared, nbytes)
        if choice.algorithm.startswith(("slices", "leaders")) and not (shared or self.has_peers):
            return Choice("mpi", why="processes here can't read each other's memory")
        return choice


def _check_verb(what: str) -> None:
    """Raise ArgumentError for an unknown collective."""
    if what not in VERBS:
        raise ArgumentError(f"unknown collective '{what}'; known are {', '.join(VERBS)}")


class CachedCall(NamedTuple):
    """A call made before: its plan, its arrays as given, and the arrays that the plan was bound to."""

    plan: Plan
    send: np.ndarray
    recv: np.ndarray | None
    bound_send: np.ndarray
    bound_recv: np.ndarray | None


def _content(send: Any) -> tuple[int, str]:
    """Return the number and the type of the elements sent; types that MPI has no name for count as bytes."""
    if not hasattr(send, "dtype"):
        return 0, type(send).__name__
    return (send.size, str(send.dtype)) if send.dtype in TYPES else (send.nbytes, "uint8")


def _bytes(array: np.ndarray) -> np.ndarray:
    """Return a view of an array's bytes."""
    return array.reshape(-1).view(np.uint8)


def on_device(array: Any) -> bool:
    """Return whether `array` lies in device memory."""
    return hasattr(array, "__cuda_array_interface__")


def memory_of(array: Any) -> str:
    """Return "host" or "device"."""
    return "device" if on_device(array) else "host"
