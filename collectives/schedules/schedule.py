"""Schedule: what each rank sends, receives and adds, as data.

A schedule is made by `collectives.make_schedule`, printed by `str`, counted by `simulation.cost`, proved by
`simulation.check`, timed by `collectives.model` and run over MPI, each time by `execution.execute`. One rank's part
is computed alone, so that one rank of 100,000 costs what one of 8 does.

**Memory.** A rank has two vectors of `elements`: OWN, its contribution, which is only read, and OUT. They may be
the same memory (in place). Besides, it has scratch: slots 0, 1, ... of `slot_elements` each, at most 2 `depth` of them
(`slots(steps)` says how many). A step's [start, stop) counts elements of the vectors; in a slot the same data lies at
[0, stop - start). A broadcast has OUT alone, which the root brings filled. OUT is needed where `uses_out(steps)`; that
includes ranks without a result that halving, or S-Caffe's levels, leave sums on. Elsewhere there need be none.

**Steps** ("add" stands for the operation that reduces):

| op | what it does |
|---|---|
| SEND | send `source`[start:stop] to `peer`, not blocking |
| RECV | receive from `peer` into `target`[start:stop] |
| RECV_ADD | receive from `peer` into slot `slot`, then `target` = `source` + it; target may be that slot |
| COPY | `target` = `source`; nothing to do in place |

**Order.** A rank takes its steps in order. RECV, RECV_ADD and COPY are finished when they have been taken; a SEND goes
on in the background and is finished when its request is. Receives are *posted* ahead of their turn, in the order of
the steps, as many as the executor's window allows. A step may not start (a receive: be posted) before all steps up to
and including number `after` have finished; that keeps data in flight from being overwritten, in place or not. So an
executor keeps a first-in-first-out queue of sends, waits before step i for those numbered `steps[i].after` or less,
and at the end for all. A receive whose `after` has not finished when its post would be due is posted later, at its
turn at the latest. Room for two receives and two sends is enough; more hides more.

**Messages** of one (source, destination, tag) match in order, as MPI's do; tags are small numbers from 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Protocol

from collectives.errors import AlgorithmError

Slice = tuple[int, int]
OWN, OUT = -2, -1  # where a step finds or leaves data; 0 and above are scratch slots


class Op(IntEnum):
    """What a step does."""

    SEND, RECV, RECV_ADD, COPY = range(4)


class Step(NamedTuple):
    """One step of one rank; fields that its op does not use are -1 (`source` and `target`: OUT)."""

    op: Op
    peer: int
    tag: int
    start: int
    stop: int
    source: int = OUT
    target: int = OUT
    slot: int = -1
    after: int = -1

    def __str__(self) -> str:
        part = f"[{self.start}:{self.stop}]"
        wait = f" after {self.after}" if self.after >= 0 else ""
        source, target = _name(self.source), _name(self.target)
        if self.op is Op.SEND:
            return f"send {source}{part} to {self.peer} tag {self.tag}{wait}"
        if self.op is Op.RECV:
            return f"recv {target}{part} from {self.peer} tag {self.tag}{wait}"
        if self.op is Op.COPY:
            return f"copy {target}{part} = {source}{wait}"
        return f"recv {_name(self.slot)} from {self.peer} tag {self.tag}, {target}{part} = {source} + it{wait}"


def _name(place: int) -> str:
    return {OWN: "own", OUT: "out"}.get(place, f"slot {place}")


class Steps(Protocol):
    """What an algorithm gives: the steps of each rank, and the slice of OUT where its result stands."""

    def of(self, rank: int) -> list[Step]: ...

    def result(self, rank: int) -> Slice: ...


@dataclass(frozen=True)
class Schedule:
    """A collective `op` ("reduce", "bcast", "allreduce") by `algorithm` on `size` ranks.

    `elements` is the vectors' length, `chunk` the length of a message, `depth` how many chunks a rank can hold in
    scratch for each child it adds chunk by chunk, `slot_elements` the length of a scratch slot.
    """

    op: str
    algorithm: str
    size: int
    elements: int
    chunk: int
    root: int
    depth: int
    slot_elements: int
    steps: Steps = field(repr=False, compare=False)

    def rank(self, rank: int) -> list[Step]:
        """Return `rank`'s steps; each call computes them anew."""
        if not 0 <= rank < self.size:
            raise AlgorithmError(f"rank {rank} of a schedule for {self.size} ranks")
        return self.steps.of(rank)

    def result(self, rank: int) -> Slice:
        """Return the slice [start, stop) of OUT where the result stands on `rank`; elsewhere OUT is undefined."""
        return self.steps.result(rank)

    def __str__(self) -> str:
        lines = [f"{self.op} of {self.elements} elements over {self.size} ranks, {self.algorithm}, chunk {self.chunk}"]
        for rank in range(self.size):
            lines += [f"rank {rank}:", *(f"  {i:3} {step}" for i, step in enumerate(self.rank(rank)))]
        return "\n".join(lines)


def slots(steps: Iterable[Step]) -> int:
    """Return how many scratch slots the steps use."""
    return 1 + max((max(step.slot, step.source, step.target) for step in steps), default=-1)


def uses_out(steps: Iterable[Step]) -> bool:
    """Say whether the steps touch OUT."""
    writers = (Op.RECV, Op.RECV_ADD, Op.COPY)
    return any(
        (step.op in writers and step.target == OUT) or (step.op is not Op.RECV and step.source == OUT) for step in steps
    )


def chunks(start: int, stop: int, chunk: int) -> Iterator[Slice]:
    """Yield the slices of at most `chunk` elements that make up [start, stop)."""
    return ((at, min(at + chunk, stop)) for at in range(start, stop, chunk))


class StepWriter:
    """Writes one rank's steps; gives out scratch slots in turn and knows what each step must wait for."""

    def __init__(self, depth: int) -> None:
        self.steps: list[Step] = []
        self._depth = depth
        self._taken = [0, 0]
        self._used: dict[object, int] = {}  # by slot, or slice of the vectors: the last step that touched it

    def slot(self, pool: int) -> int:
        """Return the next slot of pool 0 (sums that are sent on) or 1 (data that is added and done with)."""
        self._taken[pool] += 1
        return pool * self._depth + (self._taken[pool] - 1) % self._depth

    def send(self, peer: int, tag: int, part: Slice, source: int) -> None:
        self._add(Step(Op.SEND, peer, tag, *part, source=source), source)

    def recv(self, peer: int, tag: int, part: Slice) -> None:
        self._add(Step(Op.RECV, peer, tag, *part, after=self._used.get(part, -1)), OUT)

    def recv_add(self, peer: int, tag: int, part: Slice, slot: int, source: int, target: int) -> None:
        after = self._used.get(slot, -1)  # no algorithm adds to what it has sent; check would tell
        self._add(Step(Op.RECV_ADD, peer, tag, *part, source, target, slot, after), source, target, slot)

    def copy(self, part: Slice) -> None:
        self._add(Step(Op.COPY, -1, -1, *part, source=OWN), OWN)

    def _add(self, step: Step, *places: int) -> None:
        for place in places:
            self._used[place if place >= 0 else (step.start, step.stop)] = len(self.steps)
        self.steps.append(step)
