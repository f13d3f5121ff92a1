"""Schedules by name: reduce, bcast, allreduce and reduce_scatter over trees, rings and halving."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from collectives.errors import AlgorithmError
from collectives.schedule import OUT, OWN, Part, Schedule, Slice, Step, chunks
from collectives.trees import Tree, make_trees

DEPTH = 4  # chunks in scratch for each child: enough to hide an add, few enough to stay in cache
UP, DOWN = 0, 1  # an allreduce's two directions have tags of their own


@dataclass(frozen=True)
class Stream:
    """A tree and the slices that go over it, one after the other; `lane` is 0, or 1 for the second of two trees."""

    tree: Tree
    slices: list[Slice]
    lane: int

    def tag(self, direction: int) -> int:
        return 2 * self.lane + direction


@dataclass(frozen=True)
class Plan:
    """What all ranks of a tree schedule share; `order` maps virtual ranks to ranks, `virtual` back."""

    streams: list[Stream]
    order: Sequence[int]
    virtual: Sequence[int]
    depth: int
    elements: int

    def part(self, rank: int, up: bool, down: bool) -> list[Step]:
        """Return the steps of `rank`: all that goes up, then all that comes down."""
        v, part = self.virtual[rank], Part(self.depth)
        if len(self.order) == 1 and up and self.elements:
            part.copy((0, self.elements))
        if up:
            for stream, chunk in turns(self.streams, lambda tree: tree.height(v)):
                self._up(part, v, stream, chunk)
        if down:
            for stream, chunk in turns(self.streams, lambda tree: tree.depth(v)):
                self._down(part, v, stream, chunk)
        return part.steps

    def _up(self, part: Part, v: int, stream: Stream, chunk: Slice) -> None:
        """Add the children's chunks to this rank's, in a scratch slot or at the root in OUT; send the sum on."""
        parent, tag = stream.tree.parent(v), stream.tag(UP)
        total = OWN
        for child in stream.tree.children(v):
            slot = part.slot(0 if total == OWN else 1)
            source, total = total, OUT if parent is None else slot if total == OWN else total
            part.recv_add(self.order[child], tag, chunk, slot, source, total)
        if parent is not None:
            part.send(self.order[parent], tag, chunk, total)

    def _down(self, part: Part, v: int, stream: Stream, chunk: Slice) -> None:
        """Take the parent's chunk and hand it on, first to the child with most ranks below it."""
        parent, tag = stream.tree.parent(v), stream.tag(DOWN)
        if parent is not None:
            part.recv(self.order[parent], tag, chunk)
        for child in reversed(stream.tree.children(v)):
            part.send(self.order[child], tag, chunk, OUT)


def turns(streams: list[Stream], lag: Callable[[Tree], int]) -> Iterator[tuple[Stream, Slice]]:
    """Yield chunks in the order of time: a rank gets chunk k of a tree in round k + lag.

    Of two trees a rank is a leaf in one: its chunks there go out ahead of the sums that it waits for in the other.
    """
    if len(streams) == 1:
        return ((streams[0], chunk) for chunk in streams[0].slices)
    lags = [lag(stream.tree) for stream in streams]
    timed = [(lags[s.lane] + k, s.lane, k) for s in streams for k in range(len(s.slices))]
    return ((streams[lane], streams[lane].slices[k]) for _, lane, k in sorted(timed))


OPS = {"reduce": (True, False), "bcast": (False, True), "allreduce": (True, True)}


def make_schedule(
    op: str,
    algorithm: str,
    size: int,
    elements: int,
    *,
    chunk: int = 1 << 16,
    root: int = 0,
    chain_size: int | None = None,
    order: Sequence[int] | None = None,
    depth: int = DEPTH,
) -> Schedule:
    """Return the schedule of `op` ("reduce", "bcast", "allreduce") over `size` ranks by `algorithm`.

    `chunk` is the most elements in a message. `order` lists the ranks by their place in the algorithm, the root
    first (`Group.order`); without it ranks follow the root in a circle. `depth` chunks of scratch for each child.
    AlgorithmError for unknown names and impossible numbers.
    """
    if op not in OPS:
        raise AlgorithmError(f"unknown collective '{op}'; known are {', '.join(OPS)}")
    for name, value, least in (("size", size, 1), ("elements", elements, 0), ("chunk", chunk, 1), ("depth", depth, 1)):
        if value < least:
            raise AlgorithmError(f"{op}: {name} is {value}; it must be at least {least}")
    order = numbering(op, size, root, order)
    trees = make_trees(algorithm, size, chain_size)
    share = [elements * i // len(trees) for i in range(len(trees) + 1)]
    streams = [Stream(tree, list(chunks(share[i], share[i + 1], chunk)), i) for i, tree in enumerate(trees)]
    plan = Plan(streams, order, inverse(order), depth, elements)
    everywhere = op != "reduce"
    return Schedule(
        op,
        algorithm if chain_size is None else f"{algorithm}-{chain_size}",
        size,
        elements,
        chunk,
        root,
        depth,
        min(chunk, elements),
        part=lambda rank: plan.part(rank, *OPS[op]),
        block=lambda rank: (0, elements) if everywhere or rank == root else (0, 0),
    )


def numbering(op: str, size: int, root: int, order: Sequence[int] | None) -> Sequence[int]:
    """Return the ranks by virtual rank: `order`, or a circle from the root on."""
    if not 0 <= root < size:
        raise AlgorithmError(f"{op}: root {root} is not one of {size} ranks")
    if order is None:
        return [*range(root, size), *range(root)]
    if len(order) != size or order[0] != root or sorted(order) != list(range(size)):
        raise AlgorithmError(f"{op}: order must list each of {size} ranks once, root {root} first")
    return order


def inverse(order: Sequence[int]) -> list[int]:
    virtual = [0] * len(order)
    for v, rank in enumerate(order):
        virtual[rank] = v
    return virtual
