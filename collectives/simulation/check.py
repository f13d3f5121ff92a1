"""Check: prove without MPI that a schedule does what it says.

`check(schedule)` raises ScheduleError unless all of these hold:

- each send has its receive, with the same slice of the vectors, in the same order for each (source, dest, tag);
- no step writes what a message in flight still reads, and no receive is posted over data still in use, in place and
  not, whenever the executor posts it (`Step.after`);
- all ranks' executions end, within the limits of `InFlight`, over networks that deliver messages as late as possible,
  as soon as possible, and in random order;
- each rank's contribution is then in each element of the result exactly once, and the result is where it should be.

`Execution` itself runs, as over MPI; only the network (`simulation.adversary`) and the memory are simulated. The data
are counts of each rank's contributions, for each part of the vectors that no step divides: a sum is exact and says
what is in it. Memory that nothing has written, and memory that a posted receive may write, holds junk.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectives.errors import ScheduleError
from collectives.execution.execute import Execution, InFlight
from collectives.execution.operations import OPERATIONS
from collectives.execution.transport import HostTransport
from collectives.schedules.schedule import Schedule, Step, StepKind
from collectives.simulation.adversary import Channel, EagerDelivery, LazyDelivery, Network, RandomDelivery
from collectives.verbs import Slice

Counts = NDArray[np.int64]  # (cells x P): how often each rank's contribution is in each cell
JUNK = np.int64(-(1 << 40))  # the content of unwritten memory: no sum of it looks like a count


def check(schedule: Schedule, in_flight: InFlight | None = None, seed: int = 0) -> None:
    """Prove `schedule` right; raise ScheduleError otherwise, with the rank, the step and what is wrong.

    - `in_flight`: the executors' limits; InFlight's defaults if None.
    - `seed`: seeds the random order of delivery.

    It takes time and memory for all ranks' steps: use it up to some hundred ranks.
    """
    in_flight = in_flight or InFlight()
    parts = [schedule.rank(rank) for rank in range(schedule.size)]
    cells = Cells(schedule, parts)
    _check_messages(parts)
    for rank, steps in enumerate(parts):
        _check_overwriting(rank, steps, cells)
    counted = cells.schedule(schedule, parts)
    for order, in_place in ((LazyDelivery(), True), (EagerDelivery(), False), (RandomDelivery(seed), True)):
        _check_result(counted, Network(schedule.size, order, in_flight), in_place and schedule.verb.joins)


class Cells:
    """The parts of the vectors between all bounds of steps and results."""

    def __init__(self, schedule: Schedule, parts: Sequence[Sequence[Step]]) -> None:
        ends = {end for steps in parts for step in steps for end in (step.start, step.stop)}
        ends |= {0, schedule.elements, *schedule.bounds}
        if min(ends) < 0 or max(ends) > schedule.elements:
            raise ScheduleError(f"a step reaches beyond the {schedule.elements} elements: {min(ends)} to {max(ends)}")
        longest = max((step.stop - step.start for steps in parts for step in steps if _slots(step)), default=0)
        if longest > schedule.slot_elements:
            raise ScheduleError(f"a step has {longest} elements in a slot of {schedule.slot_elements}")
        self._number = {end: number for number, end in enumerate(sorted(ends))}

    def schedule(self, schedule: Schedule, parts: Sequence[Sequence[Step]]) -> Schedule:
        """Return the same schedule with cells for elements."""
        number = self._number
        cells = [[s._replace(start=number[s.start], stop=number[s.stop]) for s in part] for part in parts]
        counted, length = _Counted(cells, list(number)), number[schedule.elements]
        bounds = [number[end] for end in schedule.bounds]
        return replace(schedule, elements=length, slot_elements=max(length, 1), bounds=bounds, steps=counted)

    def __len__(self) -> int:
        return len(self._number)

    def __getitem__(self, part: Slice) -> slice:
        return slice(self._number[part[0]], self._number[part[1]])


def _check_messages(parts: Sequence[Sequence[Step]]) -> None:
    """Check that sends and receives match."""
    sends: dict[Channel, list[tuple[int, Step]]] = defaultdict(list)
    receives: dict[Channel, list[tuple[int, Step]]] = defaultdict(list)
    for rank, steps in enumerate(parts):
        for i, step in enumerate(steps):
            if step.kind is StepKind.SEND:
                sends[rank, step.peer, step.tag].append((i, step))
            elif step.kind is not StepKind.COPY:
                receives[step.peer, rank, step.tag].append((i, step))
    for channel in sends.keys() | receives.keys():
        _check_channel(channel, sends[channel], receives[channel])


def _check_channel(channel: Channel, sends: list[tuple[int, Step]], receives: list[tuple[int, Step]]) -> None:
    """Check that the messages of a channel match in order."""
    source, dest, tag = channel
    where = f"from rank {source} to rank {dest}, tag {tag}"
    for (i, send), (j, receive) in zip(sends, receives, strict=False):
        if send[3:5] != receive[3:5]:
            raise ScheduleError(
                f"{where}: step {i} sends [{send.start}:{send.stop}] where step {j} receives "
                f"[{receive.start}:{receive.stop}]"
            )
    if len(sends) != len(receives):
        raise ScheduleError(f"{where}: {len(sends)} sends, {len(receives)} receives")


def _check_overwriting(rank: int, steps: Sequence[Step], cells: Cells) -> None:
    """Compare each step's `after` with the last steps that touch, or send, what it writes.

    OWN and OUT count as one, as they are in place. A receive may write from its posting on, so that all earlier steps
    count. Other writes happen in their turn, when of the earlier steps only sends may be unfinished.
    """
    used, sent = np.full(len(cells), -1), np.full(len(cells), -1)  # the last step that touched, or sent, each cell
    slots_used: dict[int, int] = {}
    slots_sent: dict[int, int] = {}
    finished = -1  # sends up to this step are complete
    for i, step in enumerate(steps):
        part, early, late = cells[step.start, step.stop], -1, -1
        finished = max(finished, step.after)
        if step.kind is StepKind.RECV:
            early = max(used[part], default=-1)
        elif step.kind is StepKind.RECV_ADD:
            early = slots_used.get(step.slot, -1)
        if step.kind in (StepKind.RECV_ADD, StepKind.COPY):
            late = slots_sent.get(step.target, -1) if step.target >= 0 else max(sent[part], default=-1)
        if step.after < early or finished < late or step.after >= i:
            raise ScheduleError(f"rank {rank}, step {i} ({step}): it must wait for step {max(early, late)}")
        for place in _touched(step):
            if place < 0:
                used[part] = i
            else:
                slots_used[place] = i
        if step.kind is StepKind.SEND and step.source < 0:
            sent[part] = i
        elif step.kind is StepKind.SEND:
            slots_sent[step.source] = i


def _touched(step: Step) -> tuple[int, ...]:
    """Return the places that a step reads or writes."""
    if step.kind is StepKind.SEND:
        return (step.source,)
    if step.kind is StepKind.RECV:
        return (step.target,)
    return (step.source, step.target) if step.kind is StepKind.COPY else (step.source, step.target, step.slot)


def _slots(step: Step) -> bool:
    """Return whether a step touches scratch slots."""
    return max(step.source, step.target, step.slot) >= 0


@dataclass(frozen=True)
class _Counted:
    """The steps of a schedule of cells. `starts` has the first element of each cell."""

    parts: Sequence[list[Step]]
    starts: Sequence[int]

    def of(self, rank: int) -> list[Step]:
        """Return the steps of `rank`."""
        return self.parts[rank]


class Ledger(HostTransport):
    """A transport over one rank's memory of counts. A received message becomes visible only when it is landed."""

    def __init__(self, rank: int, size: int):
        self.rank, self.size = rank, size
        self._arriving: deque[tuple[list[Any], Counts]] = deque()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Counts:
        """Return memory full of junk."""
        return np.full((*shape, self.size), JUNK)

    def message(self, view: np.ndarray, sent: bool) -> list[Any]:
        """Return the elements."""
        return [view]

    def receive(self, comm: Any, message: list[Any], peer: int, tag: int) -> Any:
        """Post a receive; the place holds junk until the message is landed."""
        message[0][...] = JUNK
        arrived = message[0].copy()
        self._arriving.append((message, arrived))
        return comm.Irecv([arrived], peer, tag)

    def land(self, message: list[Any]) -> None:
        """Bring the message to its place. Raise ScheduleError where another one is due."""
        first, arrived = self._arriving.popleft()
        if first is not message:
            raise ScheduleError(f"rank {self.rank} lands messages in another order than it posted their receives")
        message[0][...] = arrived


def _check_result(schedule: Schedule, network: Network, in_place: bool) -> None:
    """Run all ranks' executions, and check what each has afterwards."""
    weights = schedule.elements + np.arange(schedule.elements)  # no sum of several is one of them
    owns, outs = _vectors(schedule, weights, in_place)
    network.run([_execution(schedule, network, rank, owns[rank], outs[rank]) for rank in range(schedule.size)])
    expected = np.zeros((schedule.elements, schedule.size), np.int64)
    for rank in range(schedule.size):
        expected[slice(*schedule.contribution(rank)), rank] = 1
    for rank, (own, out) in enumerate(zip(owns, outs, strict=True)):
        start, stop = schedule.result(rank)
        wrong = np.argwhere(out[start:stop] != weights[start:stop, None] * expected[start:stop])
        if len(wrong):
            cell, of = wrong[0]
            found = _found(of, out[start + cell, of], weights[start + cell])
            element = schedule.steps.starts[start + cell]  # type: ignore[attr-defined]
            raise ScheduleError(
                f"the result on rank {rank} has at {element} {found} instead of {expected[start + cell, of]}"
            )
        if not in_place and (np.delete(own, rank, 1).any() or (own[:, rank] != weights).any()):
            raise ScheduleError(f"rank {rank} has written to its contribution")


def _vectors(schedule: Schedule, weights: Counts, in_place: bool) -> tuple[list[Counts], list[Counts]]:
    """Return all ranks' contributions, and the arrays of their results."""
    shape = len(weights), schedule.size
    owns = [np.zeros(shape, np.int64) for _ in range(schedule.size)]
    for rank, own in enumerate(owns):
        own[:, rank] = weights
    if in_place:
        return owns, owns
    outs = [np.full(shape, JUNK) for _ in owns]
    for rank, out in enumerate(outs if not schedule.verb.joins else ()):
        part = slice(*schedule.contribution(rank))
        out[part] = owns[rank][part]
    return owns, outs


def _execution(schedule: Schedule, network: Network, rank: int, own: Counts, out: Counts) -> Any:
    """Return one rank's execution on the network."""
    op = OPERATIONS["sum"] if schedule.verb.joins else None
    memory = Ledger(rank, schedule.size)
    execution = Execution(schedule, network.comm(rank), op, own if op else None, out, memory, network.in_flight)  # type: ignore
    return execution.run()


def _found(of: int, value: int, weight: int) -> str:
    """Return in words what an element has of a rank's contribution."""
    if value < 0:
        return "nothing that was ever written"
    if value % weight:
        return f"the contribution of rank {of} to other elements"
    return f"the contribution of rank {of} {value // weight} times"
