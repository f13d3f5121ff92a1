"""Communicator: collectives over the ranks of an MPI communicator, by the algorithm that suits them."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from collectives import tuning
from collectives.agreement import agree, share
from collectives.arguments import (
    ArgumentCheck,
    Checked,
    attempt,
    check_comm,
    check_parts,
    check_question,
    on_device,
    shape_of,
    shown,
)
from collectives.errors import ArgumentError, CollectiveError, DeviceFault
from collectives.execution import window
from collectives.execution.device.choice import NCCL
from collectives.execution.device.nccl import NcclCommunicators
from collectives.execution.maker import Call, PlanMaker, split
from collectives.execution.node import NodeComm
from collectives.execution.plans import Plan, kept
from collectives.group import Group
from collectives.loss import noticing
from collectives.progress import PROGRESS
from collectives.revocable import Revocable
from collectives.schedules.algorithms import LEADERS, Choice, check_algorithm
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
    run the plan and check nothing across ranks; `check=True` checks again. A mistake that all ranks make in such a
    later call is an error on all. One that a rank makes alone ends the job with one line, after 5 seconds, since the
    others are in the collective already.

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

    progress = PROGRESS

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
        check_comm(comm)
        self.comm, self.rank, self.size, self.table = comm.Dup(), comm.rank, comm.size, table
        try:
            share(self.comm, attempt(lambda: check_parts(self.size, table, group, node, supernodes))[1])
            self.group = self._agree_on(group, supernodes)
        except CollectiveError as error:
            if error.alike:
                self.comm.Free()
            raise
        self._local = split(self.comm, self.group.nodes[self.rank])
        self.node, self._owns = NodeComm(self._local, node), node is None
        networks, peers = zip(*self.comm.allgather((tuning.network(), self.node.has_peers)), strict=True)
        self._network, self.has_peers = networks[0], all(peers)
        self._plans: dict[tuple[Call, int], Plan] = {}  # the same keys on all ranks
        self._entered = 0  # calls
        self._last: dict[CallArguments, CachedCall] = {}  # by a call's arguments
        self._calls: defaultdict[Plan, deque[CallArguments]] = defaultdict(deque)  # each plan's keys in `_last`
        self._given_device, self._nccl, self._owns_nccl = device, nccl or NcclCommunicators(), nccl is None
        self._arguments = ArgumentCheck(self.rank, self.size, self._device_for)
        over = self.comm, self._local, self.group, self.node
        self._maker = PlanMaker(*over, self._device_for, self._nccl, through_host)

    def _agree_on(self, group: Group | None, supernodes: Supernodes) -> Group:
        """Return the group of the ranks, and take the table. Raise what is wrong with either, on all ranks."""
        self._on_rank_0(self._take_table)
        self.agree({"the group": str(group), "the supernodes": as_text(supernodes)})
        group = group or Group.from_comm(self.comm)
        return find_supernodes(self.comm, group, supernodes) if supernodes else group

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
        Raise ArgumentError on all ranks for an unknown device, and where a rank has no CuPy or no GPU;
        DisagreementError where the ranks of a node differ.
        """
        form, error = attempt(lambda: self._form(shape, dtype, device))
        share(self.comm, error)
        assert form is not None
        agree(self.node.comm, {"the shape": str(form[0]), "the type": str(form[1]), "the device": device})
        array: np.ndarray = (self.node.empty if device == "cpu" else self._device_for(device).zeros)(*form)
        return array

    def _form(self, shape: Any, dtype: Any, device: Any) -> tuple[tuple[int, ...], np.dtype]:
        """Return the shape and the type of a new array. Raise ArgumentError for invalid ones."""
        if device != "cpu":
            self._device_for(device)
        kind = np.dtype(dtype)
        if kind.hasobject:
            raise ArgumentError(f"dtype is {kind}: ranks can't share Python objects")
        return shape_of(shape), kind

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
        share(self.comm, attempt(lambda: check_question(what, nbytes, algorithm))[1])

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
        self._entered += 1
        given = what, send, recv, op, root, algorithm, chain_size, chunk_bytes, check, number, staged
        return self._plan(given)

    def _plan(self, given: tuple[Any, ...]) -> Plan:
        """Return the plan of the arguments of `plan`, bound to the arrays."""
        if not self.comm:
            raise ArgumentError(f"{_named(given[0])}: this communicator has been freed")
        checked, error = attempt(lambda: self._arguments.checked(*given))
        plan = None if checked is None else self._plans.get((checked.call, checked.number))
        if checked is None or plan is None or checked.check:
            plan = self._agreed_plan(given[0], checked, error, plan)
        assert checked is not None
        plan.bind(checked.send, checked.recv)
        return plan

    def _agreed_plan(
        self, what: Any, checked: Checked | None, error: CollectiveError | None, plan: Plan | None
    ) -> Plan:
        """Return `plan`, or without one a new plan, once all ranks agree on the call. Collective.

        Raise on all ranks what is wrong on any. Ranks that know a plan may be running it, without a word to this one.
        """
        if checked is not None:
            error = attempt(lambda: check_algorithm(checked.call.what, checked.call.algorithm))[1]
        held = checked is not None and self._is_held(checked)
        shared = share(self.comm, error, held, self._entered, _named(what) if self._plans else "")
        assert checked is not None
        call = checked.call
        self.agree(call.described())
        if plan is None:
            choice = self._on_rank_0(lambda: self._choice(call, shared))
            plan = self._plans[call, checked.number] = self._maker.make(call, choice)
        return plan

    @noticing
    def agree(self, values: Mapping[str, str], error: CollectiveError | None = None) -> None:
        """Raise DisagreementError on every rank unless all ranks have the same `values`. Collective.

        Where any rank passes an `error`, raise the first one on all.
        """
        share(self.comm, error)
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
        enough, error = attempt(lambda: self.size == 1 or window.room() > 1.1 * nbytes * self.node.size)
        return share(self.comm, error, bool(enough))

    @noticing
    def give_back(self, *arrays: np.ndarray) -> None:
        """Free the memory of arrays that `empty` returned, and all plans. Collective.

        The arrays must not be used afterwards. Raise ArgumentError, on all ranks, for an array from elsewhere.
        """
        share(self.comm, attempt(lambda: [self.node.window_of(one) for one in arrays if not on_device(one)])[1])
        self.forget()
        for array in arrays:
            if not on_device(array):
                self.node.give_back(array)

    @noticing
    def free(self, windows: bool = True) -> None:
        """Free plans, windows and communicators; do nothing a second time. Collective.

        With `windows=False`, the same on all ranks, the windows stay until MPI ends, for arrays that are still in use.
        """
        if not self.comm:
            return
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
        self._entered += 1
        try:
            known = self._last.get(call)
        except Exception:  # an argument that can be no key
            known = None
        if known is None or known.send is not send or known.recv is not recv or check is not False:
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
        what, op, *how = call[:-2]
        plan = self._plan((what, send, recv, op, *how, check, 0, False))
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

    def _is_held(self, checked: Checked) -> bool:
        """Return whether the arrays lie in windows."""
        arrays = [array for array in (checked.send, checked.recv) if array is not None]
        return checked.call.memory == "host" and all(self.node.holds(array) for array in arrays)

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


def _named(what: Any) -> str:
    """Return a collective's name for errors, also of what is none."""
    return what if isinstance(what, str) else shown(what)


class CachedCall(NamedTuple):
    """A call made before: its plan, its arrays as given, and the arrays that the plan was bound to."""

    plan: Plan
    send: np.ndarray
    recv: np.ndarray | None
    bound_send: np.ndarray
    bound_recv: np.ndarray | None
