"""SimulatedCommunicator: the methods of a Communicator that workflows use, for ranks in virtual time.

Its plans run the executions of the schedules that a Communicator would run. Arrays have lengths and types alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from collectives.errors import AlgorithmError, CollectiveError
from collectives.execution.execute import Execution
from collectives.execution.node import Requests
from collectives.execution.operations import OPERATIONS, Operation
from collectives.execution.plans import Plan
from collectives.execution.transport import HostTransport
from collectives.group import Group
from collectives.progress import ProgressEngine
from collectives.schedules.algorithms import Choice, check_algorithm, make_schedule, order_for, with_chain_size
from collectives.schedules.registry import known
from collectives.schedules.schedule import Schedule
from collectives.simulation.events import Lengths, Slots
from collectives.simulation.ranks import SimulatedRank

Choose = Callable[[str, int], Choice]  # of a collective and its bytes


class Chooser:
    """What all ranks share: the group, the choice of algorithms, and the schedules that have been made.

    `choose(what, nbytes)` returns what "auto" means, and the chunk of an algorithm that is given none.
    """

    def __init__(self, group: Group, choose: Choose, chunk_bytes: int):
        self.group, self.choose = group, cache(choose)
        self._chunk_bytes = chunk_bytes
        self.schedule = cache(self._schedule)
        self.chosen: dict[tuple[str, int], Choice] = {}  # by collective and bytes

    def choice(self, what: str, algorithm: str, nbytes: int, chunk_bytes: int) -> Choice:
        """Return the algorithm of a collective, and the bytes of its messages."""
        tuned = 0
        if algorithm == "auto":
            algorithm, tuned, _ = self.choose(what, nbytes)
        return Choice(algorithm, chunk_bytes or tuned or self._chunk_bytes)

    def _schedule(
        self,
        what: str,
        algorithm: str,
        nbytes: int,
        itemsize: int,
        chunk_bytes: int,
        root: int,
        counts: tuple[int, ...] | None = None,
    ) -> Schedule:
        """Return the schedule of a collective. Raise AlgorithmError for an algorithm without one."""
        choice = self.choice(what, algorithm, nbytes, chunk_bytes)
        name, chunk, _ = choice
        check_algorithm(what, name)
        self.chosen[what, nbytes] = choice
        try:
            order = order_for(name, self.group, root)
        except AlgorithmError:
            raise AlgorithmError(
                f"'{name}' is no schedule, so it can't be simulated; known are {known(what)}"
            ) from None
        size, count, elements = self.group.size, nbytes // itemsize, max(1, chunk // itemsize)
        return make_schedule(what, name, size, count, chunk=elements, root=root, order=order, counts=counts)


class SimulatedCommunicator:
    """The collectives of one rank; the arguments are those of `Communicator`."""

    def __init__(self, rank: SimulatedRank, chooser: Chooser, path: tuple[int, ...] = ()):
        self.owner, self.chooser, self._path = rank, chooser, path
        self.rank, self.group, self.size = rank.number, chooser.group, chooser.group.size
        self.now, self.progress = rank.now, ProgressEngine()
        self.comm: Any = SimpleNamespace(allgather=lambda value: [value])  # of what is equal on all ranks
        self._dups = 0
        self._plans: dict[Hashable, SimulatedPlan] = {}

    def dup(self) -> SimulatedCommunicator:
        """Return another communicator; all ranks make the same ones in the same order."""
        self._dups += 1
        return SimulatedCommunicator(self.owner, self.chooser, (*self._path, self._dups))

    def agree(self, values: Mapping[str, str], error: CollectiveError | None = None) -> None:
        """Do nothing: simulated ranks have the same arguments."""

    def free(self) -> None:
        """Drop the plans."""
        self._plans.clear()

    def reduce(self, send: np.ndarray, recv: Any = None, **how: Any) -> None:
        """Reduce to the root."""
        self.plan("reduce", send, **how).run()

    def allreduce(self, send: np.ndarray, recv: Any = None, **how: Any) -> None:
        """Reduce to all ranks."""
        self.plan("allreduce", send, **how).run()

    def bcast(self, array: np.ndarray, root: int = 0, **how: Any) -> None:
        """Broadcast from the root."""
        self.plan("bcast", array, root=root, **how).run()

    def reduce_scatter(self, send: np.ndarray, recv: Any = None, **how: Any) -> None:
        """Reduce, and give each rank its block."""
        self.plan("reduce_scatter", send, **how).run()

    def allgather(self, array: np.ndarray, recv: Any = None, **how: Any) -> None:
        """Give all ranks the blocks of all."""
        self.plan("allgather", array, **how).run()

    def plan(
        self,
        what: str,
        send: np.ndarray,
        recv: Any = None,
        op: str = "sum",
        root: int = 0,
        algorithm: str = "auto",
        chain_size: int | None = None,
        chunk_bytes: int = 0,
        number: int = 0,
        staged: bool = False,
        counts: Sequence[int] | None = None,
    ) -> SimulatedPlan:
        """Return the plan of a collective. Equal ones share one, since a communicator runs one at a time."""
        name = with_chain_size(algorithm, chain_size)
        key = (
            what,
            name,
            int(send.nbytes),
            send.dtype.itemsize,
            chunk_bytes,
            root,
            None if counts is None else tuple(counts),
        )
        if key not in self._plans:
            schedule = self.chooser.schedule(*key)
            self._plans[key] = SimulatedPlan(schedule, SimulatedEnds(self, send.dtype.itemsize), send.dtype)
        return self._plans[key]


class SimulatedPlan(Plan):
    """A schedule's execution without data."""

    def __init__(self, schedule: Schedule, ends: SimulatedEnds, dtype: np.dtype):
        self.schedule, self._owner = schedule, ends.owner
        op = OPERATIONS["sum"] if schedule.verb.joins else None
        lengths: Any = Lengths(dtype)
        self._execution = Execution(schedule, ends, op, lengths, lengths, ends)  # type: ignore[arg-type]

    def steps(self, wait: bool) -> Requests:
        """Take the schedule's steps."""
        return self._execution.run()

    def run(self) -> None:
        """Run to the end, in the rank's process."""
        self.begin()
        self._owner.wait_until(self.advance)


class SimulatedEnds(HostTransport):
    """A rank's communicator, and its transport, for one execution."""

    def __init__(self, comm: SimulatedCommunicator, itemsize: int):
        self.owner, self._path, self._itemsize = comm.owner, comm._path, itemsize
        self.rank, self.size = comm.rank, comm.size

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Return scratch memory without data."""
        return Slots()

    def message(self, view: Any, sent: bool) -> Any:
        """Return the message's bytes."""
        return view * self._itemsize

    def send(self, comm: Any, message: Any, peer: int, tag: int, synchronous: bool) -> Any:
        """Begin a send."""
        return self.owner.world.send(self.owner, (self._path, self.rank, peer, tag), message)

    def receive(self, comm: Any, message: Any, peer: int, tag: int) -> Any:
        """Post a receive."""
        return self.owner.world.receive(self.owner, (self._path, peer, self.rank, tag), message)

    def copy(self, target: Any, source: Any) -> None:
        """Do nothing: copies take no time."""

    def join(self, op: Operation, target: Any, source: Any, arrived: Any) -> None:
        """Spend the time of an addition."""
        self.owner.spend(self.owner.world.network.add(self.rank, arrived * self._itemsize))
