"""Check: prove without MPI that a schedule does what it says.

`check(schedule)` raises ScheduleError unless

- each send has its receive, with the same slice of the vectors, in the same order for each (source, dest, tag);
- no step writes what a message in flight still reads, and no receive is posted over what is still in use, in place
  and not, whenever the executor posts it (`Step.after`);
- all ranks come to their end although every send waits for its receive, with the executor's window of posted
  receives and unfinished sends, and even if it finds out about a finished send as late as possible;
- each rank's contribution is in each element of the result exactly once, and the result stands where it should.

The last one is a proof, not a sample: what goes through the schedule are counts of each rank's contributions, kept
for each part of the vectors that no step divides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from collectives.errors import ScheduleError
from collectives.replay import Channel, Window, replay
from collectives.schedule import OUT, OWN, Op, Schedule, Slice, Step

Counts = NDArray[np.int32]  # (cells x P): how often each rank's contribution is in each cell
JUNK = np.int32(-(1 << 20))  # what memory holds that nobody has written: no sum of it looks like a count


def check(schedule: Schedule, window: Window | None = None) -> None:
    """Raise ScheduleError unless `schedule` is right for executors with `window`; see the module's text."""
    window = window or Window()
    parts = [schedule.rank(rank) for rank in range(schedule.size)]
    cells = Cells(schedule, parts)
    _check_messages(parts)
    for rank, steps in enumerate(parts):
        _check_overwriting(rank, steps, cells)
    _check_result(schedule, window, cells, in_place=True)
    if schedule.op != "bcast":
        _check_result(schedule, window, cells, in_place=False)


class Cells:
    """The parts of the vectors between the places where any step or result begins or ends."""

    def __init__(self, schedule: Schedule, parts: Sequence[Sequence[Step]]) -> None:
        ends = {end for steps in parts for step in steps for end in (step.start, step.stop)}
        ends |= {end for rank in range(schedule.size) for end in schedule.result(rank)}
        if min(ends) < 0 or max(ends) > schedule.elements:
            raise ScheduleError(f"a step reaches beyond the {schedule.elements} elements: {min(ends)} to {max(ends)}")
        self._number = {end: number for number, end in enumerate(sorted(ends))}

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


class Ledger:
    """A replay's memory that counts contributions; junk stands wherever nothing has been written."""

    def __init__(self, schedule: Schedule, cells: Cells, in_place: bool) -> None:
        shape = len(cells), schedule.size
        self._cells, self._in_place = cells, in_place
        self._own = np.eye(schedule.size, dtype=np.int32)
        self._out = [np.full(shape, JUNK) for _ in range(schedule.size)]
        for rank in range(schedule.size) if in_place and schedule.op != "bcast" else [schedule.root]:
            if in_place:
                self._out[rank][:] = self._own[rank]
        self._slots: dict[tuple[int, int], tuple[Slice, Counts]] = {}

    def send(self, rank: int, step: Step) -> Counts:
        return self._read(rank, step.source, (step.start, step.stop)).copy()

    def take(self, rank: int, step: Step, data: Counts | None) -> None:
        part = step.start, step.stop
        if step.op is Op.RECV_ADD:
            assert data is not None
            self._slots[rank, step.slot] = part, data
            data = self._read(rank, step.source, part) + data
        elif step.op is Op.COPY:
            data = self._read(rank, step.source, part).copy()
        assert data is not None
        if step.target >= 0:
            self._slots[rank, step.target] = part, data
        else:
            self._out[rank][self._cells[part]] = data

    def result(self, rank: int, part: Slice) -> Counts:
        return self._read(rank, OUT, part)

    def _read(self, rank: int, place: int, part: Slice) -> Counts:
        where = self._cells[part]
        if place == OUT or (place == OWN and self._in_place):
            return self._out[rank][where]
        if place == OWN:
            return np.broadcast_to(self._own[rank], (where.stop - where.start, len(self._own)))
        if (rank, place) in self._slots:
            stands, data = self._slots[rank, place]
            if stands == part:
                return data
        return np.full((where.stop - where.start, len(self._own)), JUNK)


def _check_result(schedule: Schedule, window: Window, cells: Cells, in_place: bool) -> None:
    ledger = Ledger(schedule, cells, in_place)
    replay(schedule, window, memory=ledger, tests_sends=False)
    expected = np.ones(schedule.size, np.int32)
    if schedule.op == "bcast":
        expected[:] = np.arange(schedule.size) == schedule.root
    ends = []
    for rank in range(schedule.size):
        part = schedule.result(rank)
        ends.append(part)
        wrong = np.argwhere(ledger.result(rank, part) != expected)
        if len(wrong):
            raise ScheduleError(_wrong(rank, part, ledger.result(rank, part)[wrong[0][0]], expected, wrong[0][1]))
    _check_coverage(schedule, ends)


def _wrong(rank: int, part: Slice, counts: Counts, expected: Counts, of: int) -> str:
    times = "nothing that was ever written" if counts[of] < 0 else f"the contribution of rank {of} {counts[of]} times"
    return f"the result on rank {rank}, [{part[0]}:{part[1]}], has {times} instead of {expected[of]}"


def _check_coverage(schedule: Schedule, parts: Sequence[Slice]) -> None:
    """Check that results stand on the ranks that the collective promises them to."""
    whole = 0, schedule.elements
    if schedule.op == "reduce_scatter":
        at = 0
        for start, stop in sorted(part for part in parts if part[0] < part[1]):
            if start != at:
                break
            at = stop
        if at != schedule.elements:
            raise ScheduleError(f"no rank has the result from element {at} on, or two have")
    elif any(parts[rank] != whole for rank in ([schedule.root] if schedule.op == "reduce" else range(schedule.size))):
        raise ScheduleError(f"{schedule.op}: the result does not stand on all ranks that should have it")
