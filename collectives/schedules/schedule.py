"""Schedule: what each rank sends, receives and adds, as data.

`collectives.make_schedule` makes a schedule and `str` prints it. `simulation.cost` counts it, `simulation.check` proves
it, `collectives.model` times it and `execution.execute` runs it over MPI. The steps of one rank are computed alone, so
that one rank of 100,000 costs what one of 8 does.

**Memory.** A rank has two vectors of `elements`: OWN, its contribution, which is only read, and OUT. They may be the
same memory (in place). It also has scratch slots 0, 1, ... of `slot_elements` each, at most 2 `depth` of them;
`slots(steps)` returns their number. A step's [start, stop) counts elements of the vectors; in a slot the same data is
at [0, stop - start). A verb that only moves has OUT alone, in which each rank brings its contribution. OUT is needed
where `uses_out(steps)` is true, and outside a rank's result where `extent_of_out` reaches beyond it: there halving, or
S-Caffe's levels, keep sums.

**Steps** ("add" stands for the operation that reduces):

| kind | what it does |
|---|---|
| SEND | send `source`[start:stop] to `peer`, without blocking |
| RECV | receive from `peer` into `target`[start:stop] |
| RECV_ADD | receive from `peer` into slot `slot`, then `target` = `source` + it; target may be that slot |
| COPY | `target` = `source`; nothing to do in place |

**Order.** A rank takes its steps in order. RECV, RECV_ADD and COPY are finished when they have been taken; a SEND
continues in the background and is finished when its request is complete. Receives are *posted* ahead of their turn, in
the order of the steps, as many as the executor's `InFlight` allows. A step may not start (a receive: be posted) before
all steps up to number `after` have finished; that keeps data in flight from being overwritten. So an executor

- keeps a first-in-first-out queue of sends;
- waits before step i for the sends numbered `steps[i].after` or less, and at the end for all;
- posts a receive whose `after` has not finished at a later step, at the latest in its turn.

Two receives and two sends in flight are enough at `depth` 4, `depth` / 2 sends beyond; more hide more.

**Messages** of one (source, destination, tag) match in order, as MPI's do; tags are small numbers from 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Protocol

from collectives.errors import AlgorithmError
from collectives.verbs import SCHEDULED, Slice, Verb

OWN, OUT = -2, -1  # places of data; 0 and above are scratch slots


class StepKind(IntEnum):
    """The kinds of steps."""

    SEND, RECV, RECV_ADD, COPY = range(4)


class Step(NamedTuple):
    """One step of one rank. Fields that its kind does not use are -1 (`source` and `target`: OUT)."""

    kind: StepKind
    peer: int
    tag: int
    start: int
    stop: int
    source: int = OUT
    target: int = OUT
    slot: int = -1
    after: int = -1

    def __str__(self) -> str:
        """Return the step in words."""
        part = f"[{self.start}:{self.stop}]"
        wait = f" after {self.after}" if self.after >= 0 else ""
        source, target = _name(self.source), _name(self.target)
        if self.kind is StepKind.SEND:
            return f"send {source}{part} to {self.peer} tag {self.tag}{wait}"
        if self.kind is StepKind.RECV:
            return f"recv {target}{part} from {self.peer} tag {self.tag}{wait}"
        if self.kind is StepKind.COPY:
            return f"copy {target}{part} = {source}{wait}"
        return f"recv {_name(self.slot)} from {self.peer} tag {self.tag}, {target}{part} = {source} + it{wait}"


def _name(place: int) -> str:
    """Return the name of a place."""
    return {OWN: "own", OUT: "out"}.get(place, f"slot {place}")


class Steps(Protocol):
    """The steps of every rank; an algorithm makes them."""

    def of(self, rank: int) -> list[Step]:
        """Return the steps of `rank`."""


@dataclass(frozen=True)
class Schedule:
    """A collective `op`, the name of a verb, by `algorithm` on `size` ranks.

    - `elements`: the length of the vectors; `chunk`: the most elements in a message.
    - `root`: the root's rank.
    - `bounds`: where the ranks' blocks begin, and the end of the last one.
    - `depth`: chunks of scratch for each child whose data a rank adds chunk by chunk.
    - `slot_elements`: the length of a scratch slot.
    - `steps`: the steps of every rank.
    """

    op: str
    algorithm: str
    size: int
    elements: int
    chunk: int
    root: int
    depth: int
    slot_elements: int
    bounds: Sequence[int] = field(repr=False)
    steps: Steps = field(repr=False, compare=False)
    _last: dict[int, list[Step]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def rank(self, rank: int) -> list[Step]:
        """Return the steps of `rank`, which are the caller's to read. Raise AlgorithmError for one that does not exist.

        Those of the last rank are kept: a ring over 10,000 ranks has 40,000 steps, which take a second to write.
        """
        if not 0 <= rank < self.size:
            raise AlgorithmError(f"rank {rank} of a schedule for {self.size} ranks")
        if rank not in self._last:
            self._last.clear()
            self._last[rank] = self.steps.of(rank)
        return self._last[rank]

    def result(self, rank: int) -> Slice:
        """Return the slice [start, stop) of OUT that holds the result on `rank`; the rest of OUT is undefined."""
        return self.verb.result(rank, self.root, self.bounds)

    def contribution(self, rank: int) -> Slice:
        """Return the slice of the vector that `rank` brings: in OWN, or in OUT where nothing is joined."""
        return self.verb.contribution(rank, self.root, self.bounds)

    @property
    def verb(self) -> Verb:
        """Return the verb."""
        return SCHEDULED[self.op]

    def __str__(self) -> str:
        """Return every step of every rank, one a line."""
        lines = [f"{self.op} of {self.elements} elements over {self.size} ranks, {self.algorithm}, chunk {self.chunk}"]
        for rank in range(self.size):
            lines += [f"rank {rank}:", *(f"  {i:3} {step}" for i, step in enumerate(self.rank(rank)))]
        return "\n".join(lines)


def slots(steps: Iterable[Step]) -> int:
    """Return the number of scratch slots that the steps use."""
    return 1 + max((max(step.slot, step.source, step.target) for step in steps), default=-1)


def uses_out(steps: Iterable[Step]) -> bool:
    """Return whether the steps touch OUT."""
    return any(map(_touches_out, steps))


def extent_of_out(steps: Iterable[Step]) -> Slice:
    """Return the least slice of OUT that holds all elements which the steps touch."""
    parts = [step[3:5] for step in steps if _touches_out(step)]
    return min((start for start, _ in parts), default=0), max((stop for _, stop in parts), default=0)


def _touches_out(step: Step) -> bool:
    writers = (StepKind.RECV, StepKind.RECV_ADD, StepKind.COPY)
    return (step.kind in writers and step.target == OUT) or (step.kind is not StepKind.RECV and step.source == OUT)


def chunks(start: int, stop: int, chunk: int) -> Iterator[Slice]:
    """Yield the slices of at most `chunk` elements that make up [start, stop)."""
    return ((at, min(at + chunk, stop)) for at in range(start, stop, chunk))


class StepWriter:
    """Writes one rank's steps: gives out scratch slots in turn and computes what each step waits for."""

    def __init__(self, depth: int) -> None:
        """Begin without steps, with 2 `depth` slots."""
        self.steps: list[Step] = []
        self._depth = depth
        self._taken = [0, 0]
        self._used: dict[object, int] = {}  # the last step that touched each slot, or slice of the vectors

    def slot(self, pool: int) -> int:
        """Return the next slot of pool 0 (sums to be sent on) or 1 (data that is added at once)."""
        self._taken[pool] += 1
        return pool * self._depth + (self._taken[pool] - 1) % self._depth

    def send(self, peer: int, tag: int, part: Slice, source: int) -> None:
        """Add a SEND."""
        self._add(Step(StepKind.SEND, peer, tag, *part, source=source), source)

    def recv(self, peer: int, tag: int, part: Slice) -> None:
        """Add a RECV into OUT."""
        self._add(Step(StepKind.RECV, peer, tag, *part, after=self._used.get(part, -1)), OUT)

    def recv_add(self, peer: int, tag: int, part: Slice, slot: int, source: int, target: int) -> None:
        """Add a RECV_ADD."""
        after = self._used.get(slot, -1)  # no algorithm adds to data that it has sent; check proves it
        self._add(Step(StepKind.RECV_ADD, peer, tag, *part, source, target, slot, after), source, target, slot)

    def copy(self, part: Slice) -> None:
        """Add a COPY of OWN to OUT."""
        self._add(Step(StepKind.COPY, -1, -1, *part, source=OWN), OWN)

    def _add(self, step: Step, *places: int) -> None:
        """Add a step; note the places that it touches."""
        for place in places:
            self._used[place if place >= 0 else (step.start, step.stop)] = len(self.steps)
        self.steps.append(step)
