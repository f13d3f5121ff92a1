"""Communicator: collectives over the ranks of an MPI communicator, by the algorithm that suits them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

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
from collectives.errors import ArgumentError, CollectiveError
from collectives.execution import window
from collectives.execution.device.nccl import NcclCommunicators
from collectives.execution.line import Line, in_order
from collectives.execution.maker import Call, PlanMaker, check_coded
from collectives.execution.node import NodeComm
from collectives.execution.plans import Plan
from collectives.explaining import asked, said
from collectives.group import Group, among
from collectives.loss import raises_rank_lost
from collectives.progress import PROGRESS
from collectives.revocable import Revocable
from collectives.schedules.algorithms import LEADERS, OTHERS, Choice, check_algorithm
from collectives.supernodes import Supernodes, find_supernodes
from collectives.tuning.table import HOST, Shape
from collectives.verb_methods import VerbMethods

if TYPE_CHECKING:
    from mpi4py import MPI

    from collectives.execution.device.choice import DevicePlans
    from collectives.execution.device.device import Device

T = TypeVar("T")


class Communicator(VerbMethods, Revocable):
    """Collectives of arrays in host or device memory, and of Python objects, over the ranks of `comm`.

    All methods are collective and called by one thread, in the same order on all ranks, unless their text says
    otherwise. The arrays stay the caller's; a plan keeps references to those of its last calls (8, or 1 GiB). Each
    method waits first for the plans that were started before. Plans that are started run one after the other.

    The first call with a given operation, size, type, root and algorithm makes a plan. There the ranks check that they
    agree, and rank 0 chooses what "auto" does, as suits the memory of the arrays; a `dup` chooses again. Later calls
    run the plan and check nothing across ranks; `check=True` checks again. A rank whose later call is wrong, or new to
    it, or without a plan as those of `objects`, reaches others that are in a known call: all raise what is wrong, or
    where the calls differ, within 5 seconds, and that call's results are worthless (`collectives.mismatch`). Where it
    can't reach them, a mistake ends the job with one line after 10 seconds: others have left the call, or started more
    requests, arrays are on devices, or MPI's thread level is below MPI_THREAD_MULTIPLE.

    - `comm`: MPI communicator; it is duplicated.
    - `table`: rank 0's table for "auto"; the shipped one by default.
    - `group`: nodes and supernodes of the ranks; MPI is asked by default.
    - `node`, `nccl`: shared windows and NCCL communicators of another Communicator over the same ranks, which frees
      them.
    - `device`: the device of device arrays, CuPy's current GPU by default. With `through_host` these travel through
      pinned host memory alone: no GPU then waits for another process.
    - `progress`: "caller": what is under way advances in waits and tests; "thread": in a thread of the process too.
    - `supernodes`: hosts of each supernode, a list of lists, a pattern or "slurm"; see `collectives.supernodes`.

    Raise, on all ranks and before any data moves, ArgumentError for an invalid argument, AlgorithmError for an unknown
    algorithm, DisagreementError where the ranks differ. The communicator stays usable. Where MPI tolerates faults, all
    methods raise RankLostError once a rank is lost: see `collectives.loss`.
    """

    progress = PROGRESS

    @raises_rank_lost
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
        progress: str = "caller",
    ):
        super().__init__()
        check_comm(comm)
        self._line = Line()  # plans under way
        self.comm, self.rank, self.size, self.table = comm.Dup(), comm.rank, comm.size, table
        try:
            values, error = attempt(lambda: check_parts(self.size, table, group, node, supernodes, progress))
            share(self.comm, error, values=values)
            if progress == "thread":
                share(self.comm, attempt(PROGRESS.use_thread)[1])
            self.group = self._agree_on(group, supernodes)
        except CollectiveError as error:
            if error.alike:
                self.comm.Free()
            raise
        self._local = among(self.comm, self.group.members(self.rank))
        self.node, self._owns = NodeComm(self._local, node), node is None
        self.has_peers = share(self.comm, None, self.node.has_peers)
        self._plans: dict[tuple[Call, int], Plan] = {}  # the same keys on all ranks
        self._given_device, self._nccl, self._owns_nccl = device, nccl or NcclCommunicators(), nccl is None
        self._arguments = ArgumentCheck(self.rank, self.size, self._device_for)
        over = self.comm, self._local, self.group, self.node
        self._maker = PlanMaker(*over, self._device_for, self._nccl, through_host)

    def _agree_on(self, group: Group | None, supernodes: Supernodes) -> Group:
        """Return the group of the ranks, and take the table. Raise what is wrong with either, on all ranks."""
        self._network = self._on_rank_0(self._take_table)
        group = group or Group.from_comm(self.comm)
        return find_supernodes(self.comm, group, supernodes) if supernodes else group

    def __enter__(self) -> Communicator:
        """Return the communicator, which the end of the block frees."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Free it, but not where an error ends the block: other ranks may be elsewhere."""
        if error is None or getattr(error, "alike", False):
            self.free()

    @staticmethod
    def now() -> float:
        """Return the seconds of the clock by which its messages are timed."""
        return time.perf_counter()

    @in_order
    def dup(self) -> Communicator:
        """Return another communicator over the same ranks and windows, for collectives that run beside this one's.

        Collective. Its `free` is collective too, and leaves the windows to this communicator.
        """
        self._enter("dup", None)
        given = self.comm, self.table, self.group, self.node, self._given_device, self._nccl, ""
        other = Communicator(*given, self._maker.through_host)
        self._dups.add(other)
        return other

    @in_order
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
        self._enter("empty", error)
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

    @in_order
    def explain(
        self,
        what: str,
        nbytes: int,
        shared: bool = True,
        algorithm: str = "auto",
        device: str = "cpu",
        numbers: str = "",
    ) -> str:
        """Return a sentence: what "auto" does with `nbytes` bytes, why, and how many bytes cross supernodes.

        `shared` is whether the arrays are from `empty`. With `device="cuda"` they are float32 arrays on GPUs, which
        `numbers` may shorten, and the sentence says how they travel. Collective. Raise ArgumentError for an unknown
        collective or device, and where a rank has no GPU; AlgorithmError for an algorithm that is unknown, or can't
        send such numbers.
        """
        check = attempt(lambda: check_question(what, nbytes, algorithm, numbers))
        self._enter("explain", check[1] or (attempt(lambda: self._device_for(device))[1] if device != "cpu" else None))
        call, how = asked(what, nbytes, algorithm, device, numbers), ""
        memory = HOST if device == "cpu" else self.device_plans.memory
        choice = self._on_rank_0(lambda: self._choice(call, shared, memory))
        if device == "cpu":
            check_coded(call, choice.algorithm)
        else:
            choice, how = self._maker.device_choice(call, choice), self.device_plans.how
        return self._on_rank_0(lambda: said(call, choice, self.shape, self.group, how))

    @property
    def device_plans(self) -> DevicePlans:
        """Return the maker of plans for device arrays; it holds the device. Collective at its first use."""
        return self._maker.device_plans

    @property
    def shape(self) -> Shape:
        """Return the numbers of nodes and of ranks on each (0 where these differ), and the network that rank 0 sees."""
        nodes, each = self.group.shape
        return Shape(nodes, each, self._network if nodes > 1 else "")

    @in_order
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
        counts: Sequence[int] | None = None,
        numbers: str = "",
    ) -> Plan:
        """Return the plan of a collective, bound to these arrays. Equal calls share one plan for each `number`.

        `staged` says that the plan advances only now and then, while its rank computes. "auto" then leaves out the MPI
        library's own collectives. `numbers`: how float32 elements travel, "bf16", "float16" or "int8", with "+feedback"
        (`collectives.codecs`), or "" as they are. The other arguments are those of `reduce`.
        """
        self.entered += 1
        plan, checked = self._find(
            (what, send, recv, op, root, algorithm, chain_size, chunk_bytes, check, number, staged, counts, numbers)
        )
        plan.bind(checked.send, checked.recv)
        return plan

    @raises_rank_lost
    def _find(self, given: tuple[Any, ...]) -> tuple[Plan, Checked]:
        """Return the plan of the arguments of `plan`, and the arrays to bind it to."""
        if not self.comm:
            raise ArgumentError(f"{_named(given[0])}: this communicator has been freed")
        checked, error = attempt(lambda: self._arguments.checked(*given))
        plan = None if checked is None else self._plans.get((checked.call, checked.number))
        if checked is None or plan is None or checked.check:
            self._line.finish()
            plan = self._agreed_plan(given[0], checked, error, plan)
        assert checked is not None
        return plan, checked

    def _agreed_plan(
        self, what: Any, checked: Checked | None, error: CollectiveError | None, plan: Plan | None
    ) -> Plan:
        """Return `plan`, or without one a new plan, once all ranks agree on the call. Collective.

        Raise on all ranks what is wrong on any. Ranks that know a plan may be running it, without a word to this one.
        """
        if checked is not None and checked.call.verb.is_scheduled:
            error = attempt(lambda: check_algorithm(checked.call.what, checked.call.algorithm))[1]
        held = checked is not None and self._is_held(checked)
        shared = self._share(_named(what), error, held, {} if checked is None else checked.call.described())
        assert checked is not None
        call = checked.call
        if plan is None:
            memory = HOST if call.memory == HOST else self.device_plans.memory
            choice = self._on_rank_0(lambda: self._choice(call, shared, memory))
            plan = self._plans[call, checked.number] = self._maker.make(call, choice)
            plan.line = self._line
        return plan

    @in_order
    def agree(self, values: Mapping[str, str], error: CollectiveError | None = None) -> None:
        """Raise DisagreementError on every rank unless all ranks have the same `values`. Collective.

        Where any rank passes an `error`, raise the first one on all.
        """
        self._enter("agree", error, values=values)

    def _enter(
        self, what: str, error: CollectiveError | None, holds: bool = True, values: Mapping[str, str] | None = None
    ) -> bool:
        """Enter a call that has no plan; return and raise as `agreement.share` does. Collective."""
        self.entered += 1
        return self._share(what, error, holds, {"the operation": what} | dict(values or {}))

    def _share(self, what: str, error: CollectiveError | None, holds: bool, values: Mapping[str, str]) -> bool:
        """Return and raise as `agreement.share` does, in a new call; reach ranks in a known one. Collective."""
        may_run, over = what if self._plans else "", self._mismatch.comm
        self._agreed = self.entered
        given = error, holds, self.entered, may_run, {**values, "the call": "new"}
        return share(over or self.comm, *given, self._mismatch.reach if over else None)

    @in_order
    def forget(self) -> None:
        """Free all plans and drop the arrays that they keep."""
        for plan in self._plans.values():
            plan.free()
        self._plans.clear()
        self._forget_calls()

    @in_order
    def has_room(self, nbytes: int) -> bool:
        """Return whether each node has shared memory for `nbytes` a rank, as far as it reports. Collective."""
        enough, error = attempt(lambda: self.size == 1 or window.room() > 1.1 * nbytes * self.node.size)
        return self._enter("has_room", error, bool(enough))

    @in_order
    def give_back(self, *arrays: np.ndarray) -> None:
        """Free the memory of arrays that `empty` returned, and all plans. Collective.

        The arrays must not be used afterwards. Raise ArgumentError, on all ranks, for an array from elsewhere.
        """
        self._enter("give_back", attempt(lambda: [self.node.window_of(one) for one in arrays if not on_device(one)])[1])
        self.forget()
        for array in arrays:
            if not on_device(array):
                self.node.give_back(array)

    @in_order
    def free(self, windows: bool = True) -> None:
        """Free plans, windows and communicators; do nothing a second time. Collective.

        With `windows=False`, the same on all ranks, the windows stay until MPI ends, for arrays that are still in use.
        """
        if not self.comm:
            return
        self.forget()
        self._mismatch.free()
        if self._owns and windows:
            self.node.free()
        if self._owns_nccl:
            self._nccl.free()
        self._maker.free()
        self._local.Free()
        self.comm.Free()

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

    def _take_table(self) -> str:
        """Take the table that COLLECTIVES_TABLE names, or the shipped one, where none was given; return the network."""
        self.table = self.table or tuning.shipped()
        return tuning.network()

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

    def _choice(self, call: Call, shared: bool, memory: str) -> Choice:
        """Return the algorithm of a call: the one it names, or the table's for that memory."""
        if not call.verb.is_scheduled:
            return Choice("mpi")
        if call.algorithm != "auto":
            return Choice(call.algorithm, call.chunk_bytes)
        if memory != HOST:
            return self._for_devices(call, memory)
        choice = self._choose(call.what, call.nbytes, shared)
        if call.numbers and (choice.algorithm in OTHERS or choice.algorithm.startswith(LEADERS)):
            return Choice(tuning.instead(call.what, call.nbytes))
        if choice.algorithm == "mpi" and call.nbytes and (call.staged or call.is_half_sum):
            one_node = self.shape.nodes == 1 and (shared or self.has_peers)
            return Choice("slices" if one_node else tuning.instead(call.what, call.nbytes))
        return choice

    def _for_devices(self, call: Call, memory: str) -> Choice:
        """Return what rank 0's table says of device arrays, "auto" where it has nothing that suits them."""
        assert self.table is not None
        choice = self.table.choose(call.what, self.shape, True, call.nbytes, memory)
        is_bad = choice.algorithm == "mpi" and (call.staged or call.is_half_sum)
        if call.numbers and choice.algorithm.removeprefix(LEADERS) in OTHERS:
            is_bad = True  # schedules alone send other numbers
        return Choice("auto") if is_bad else choice

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
