"""Check: prove without MPI that a schedule does what it says.

`check(schedule)` raises ScheduleError unless

- each send has its receive, with the same slice of the vectors, in the same order for each (source, dest, tag);
- no step writes what a message in flight still reads, and no receive is posted over what is still in use, in place
  and not, whenever the executor posts it (`Step.after`);
- all ranks' executions come to their end, with their in_flight of posted receives and unfinished sends, over networks
  on which messages move as late as they may, as soon as they can, and in orders that are drawn;
- each rank's contribution is then in each element of the result exactly once, and the result stands where it should.

`Execution` itself runs, as over MPI; only the network (`simulation.adversary`) and the memory are made up. What goes
through the schedule are counts of each rank's contributions, kept for each part of the vectors that no step divides,
so that a sum is exact and says what is in it. Junk stands wherever nothing has been written, and where a posted
receive may write at any time.
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
from collectives.schedules.schedule import Op, Schedule, Slice, Step
from collectives.simulation.adversary import Channel, EagerDelivery, LazyDelivery, Network, RandomDelivery

Counts = NDArray[np.int64]  # (cells x P): each rank's contribution to each cell, as often as it is in it
JUNK = np.int64(-(1 << 40))  # what memory holds that nobody has written: no sum of it looks like a count


def check(schedule: Schedule, in_flight: InFlight | None = None, seed: int = 0) -> None:
    """Raise ScheduleError unless `schedule` is right for executions with `in_flight`; `seed` is of the drawn order."""
    in_flight = in_flight or InFlight()
    parts = [schedule.rank(rank) for rank in range(schedule.size)]
    cells = Cells(schedule, parts)
    _check_messages(parts)
    for rank, steps in enumerate(parts):
        _check_overwriting(rank, steps, cells)
    _check_coverage(schedule)
    counted = cells.schedule(schedule, parts)
    for order, in_place in ((LazyDelivery(), True), (EagerDelivery(), False), (RandomDelivery(seed), True)):
        _check_result(counted, Network(schedule.size, order, in_flight), in_place and schedule.op != "bcast")


class Cells:
    """The parts of the vectors between the places where any step or result begins or ends."""

    def __init__(self, schedule: Schedule, parts: Sequence[Sequence[Step]]) -> None:
        ends = {end for steps in parts for step in steps for end in (step.start, step.stop)}
        ends |= {end for rank in range(schedule.size) for end in schedule.result(rank)}
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
        ends = (schedule.result(rank) for rank in range(schedule.size))
        counted = _Counted(cells, [(number[start], number[stop]) for start, stop in ends], list(number))
        return replace(schedule, elements=len(self), slot_elements=len(self), steps=counted)

    def __len__(self) -> int:
        return len(self._number)

    def __getitem__(self, part: Slice) -> slice:
        return slice(self._number[part[0]], self._number[part[1]])


def _check_messages(parts: Sequence[Sequence[Step]]) -> None:
    sends: dict[Channel, list[tuple[int, Step]]] = defaultdict(list)
    receives: dict[Channel, list[tuple[int, Step]]] = defaultdict(list)
    for rank, steps in enumerate(parts):
        for i, step in enumerate(steps):
            if step.op is Op.SEND:
                sends[rank, step.peer, step.tag].append((i, step))
            elif step.op is not Op.COPY:
                receives[step.peer, rank, step.tag].append((i, step))
    for channel in sends.keys() | receives.keys():
        _check_channel(channel, sends[channel], receives[channel])


def _check_channel(channel: Channel, sends: list[tuple[int, Step]], receives: list[tuple[int, Step]]) -> None:
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

    OWN and OUT count as one, since in place they are. A receive writes from its posting on, so that all earlier
    steps count; other writes happen at their turn, when of the earlier steps only sends may still be under way.
    """
    used, sent = np.full(len(cells), -1), np.full(len(cells), -1)  # the last step that touched, or sent, each cell
    slots_used: dict[int, int] = {}
    slots_sent: dict[int, int] = {}
    finished = -1  # sends up to this step have been waited for
    for i, step in enumerate(steps):
        part, early, late = cells[step.start, step.stop], -1, -1
        finished = max(finished, step.after)
        if step.op is Op.RECV:
            early = max(used[part], default=-1)
        elif step.op is Op.RECV_ADD:
            early = slots_used.get(step.slot, -1)
        if step.op in (Op.RECV_ADD, Op.COPY):
            late = slots_sent.get(step.target, -1) if step.target >= 0 else max(sent[part], default=-1)
        if step.after < early or finished < late or step.after >= i:
            raise ScheduleError(f"rank {rank}, step {i} ({step}): it must wait for step {max(early, late)}")
        for place in _touched(step):
            if place < 0:
                used[part] = i
            else:
                slots_used[place] = i
        if step.op is Op.SEND and step.source < 0:
            sent[part] = i
        elif step.op is Op.SEND:
            slots_sent[step.source] = i


def _touched(step: Step) -> tuple[int, ...]:
    if step.op is Op.SEND:
        return (step.source,)
    if step.op is Op.RECV:
        return (step.target,)
    return (step.source, step.target) if step.op is Op.COPY else (step.source, step.target, step.slot)


def _slots(step: Step) -> bool:
    """Say whether a step touches scratch slots."""
    return max(step.source, step.target, step.slot) >= 0


@dataclass(frozen=True)
class _Counted:
    """The plan of a schedule of cells; `starts` says with which element each begins."""

    parts: Sequence[list[Step]]
    blocks: Sequence[Slice]
    starts: Sequence[int]

    def of(self, rank: int) -> list[Step]:
        return self.parts[rank]

    def result(self, rank: int) -> Slice:
        return self.blocks[rank]


class Ledger(HostTransport):
    """One rank's memory, of counts; a receive has landed when it is synchronous to, not before."""

    def __init__(self, rank: int, size: int):
        self.rank, self.size = rank, size
        self._arriving: deque[tuple[list, Counts]] = deque()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Counts:
        return np.full((*shape, self.size), JUNK)

    def message(self, view: np.ndarray, sent: bool) -> list:
        return [view]

    def receive(self, comm: Any, message: list, peer: int, tag: int) -> Any:
        message[0][...] = JUNK
        arrived = message[0].copy()
        self._arriving.append((message, arrived))
        return comm.Irecv([arrived], peer, tag)

    def land(self, message: list) -> None:
        first, arrived = self._arriving.popleft()
        if first is not message:
            raise ScheduleError(f"rank {self.rank} lands what it received in another order than it was posted")
        message[0][...] = arrived


def _check_result(schedule: Schedule, network: Network, in_place: bool) -> None:
    """Run all ranks' executions, and look at what each then has."""
    weights = schedule.elements + np.arange(schedule.elements)  # no sum of several is one of them
    owns, outs = _vectors(schedule, weights, in_place)
    network.run([_execution(schedule, network, rank, owns[rank], outs[rank]) for rank in range(schedule.size)])
    expected = np.ones(schedule.size, np.int64)
    if schedule.op == "bcast":
        expected[:] = np.arange(schedule.size) == schedule.root
    for rank, (own, out) in enumerate(zip(owns, outs, strict=True)):
        start, stop = schedule.result(rank)
        wrong = np.argwhere(out[start:stop] != np.outer(weights[start:stop], expected))
        if len(wrong):
            cell, of = wrong[0]
            found = _found(of, out[start + cell, of], weights[start + cell])
            element = schedule.steps.starts[start + cell]  # type: ignore[attr-defined]
            raise ScheduleError(f"the result on rank {rank} has at {element} {found} instead of {expected[of]}")
        if not in_place and (np.delete(own, rank, 1).any() or (own[:, rank] != weights).any()):
            raise ScheduleError(f"rank {rank} has written to its contribution")


def _vectors(schedule: Schedule, weights: Counts, in_place: bool) -> tuple[list[Counts], list[Counts]]:
    """Return all ranks' contributions, and where their results go."""
    shape = len(weights), schedule.size
    owns = [np.zeros(shape, np.int64) for _ in range(schedule.size)]
    for rank, own in enumerate(owns):
        own[:, rank] = weights
    if in_place:
        return owns, owns
    outs = [np.full(shape, JUNK) for _ in owns]
    if schedule.op == "bcast":
        outs[schedule.root][...] = owns[schedule.root]
    return owns, outs


def _execution(schedule: Schedule, network: Network, rank: int, own: Counts, out: Counts) -> Any:
    op = None if schedule.op == "bcast" else OPERATIONS["sum"]
    memory = Ledger(rank, schedule.size)
    execution = Execution(schedule, network.comm(rank), op, own if op else None, out, memory, network.in_flight)  # type: ignore
    return execution.run()


def _found(of: int, value: int, weight: int) -> str:
    """Say what an element has of a rank's contribution."""
    if value < 0:
        return "nothing that was ever written"
    if value % weight:
        return f"the contribution of rank {of} to other elements"
    return f"the contribution of rank {of} {value // weight} times"


def _check_coverage(schedule: Schedule) -> None:
    """Check that results stand on the ranks that the collective promises them to."""
    whole, parts = (0, schedule.elements), [schedule.result(rank) for rank in range(schedule.size)]
    if any(parts[rank] != whole for rank in ([schedule.root] if schedule.op == "reduce" else range(schedule.size))):
        raise ScheduleError(f"{schedule.op}: the result does not stand on all ranks that should have it")
