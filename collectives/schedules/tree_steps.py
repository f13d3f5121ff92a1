"""Steps of reduce, bcast and allreduce over trees, chunk by chunk, so that all levels of a tree work at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from collectives.schedules.schedule import OUT, OWN, Step, StepWriter, chunks
from collectives.schedules.trees import Tree
from collectives.verbs import Slice, block_of, even_bounds

UP, DOWN = 0, 1  # tags of an allreduce's two directions
LANES = 2  # tags of each tree


@dataclass(frozen=True)
class TreeSteps:
    """The steps of all ranks. `order` maps virtual ranks to ranks, `virtual` maps ranks back.

    Several trees carry equal parts of the vector. `up` and `down` say which directions the collective has.
    """

    trees: Sequence[Tree]
    order: Sequence[int]
    virtual: Sequence[int]
    elements: int
    chunk: int
    depth: int
    up: bool
    down: bool

    def of(self, rank: int) -> list[Step]:
        """Return the steps of `rank`: first all chunks up, then all chunks down."""
        v, writer = self.virtual[rank], StepWriter(self.depth)
        kin = [(tree.parent(v), tree.children(v)) for tree in self.trees]
        if self.up and len(self.order) == 1 and self.elements:
            writer.copy((0, self.elements))
        if self.up:
            for lane, chunk in self._turns(v, Tree.height):
                self._up(writer, *kin[lane], LANES * lane + UP, chunk)
        if self.down:
            for lane, chunk in self._turns(v, Tree.depth):
                self._down(writer, *kin[lane], LANES * lane + DOWN, chunk)
        return writer.steps

    def slices(self, lane: int) -> list[Slice]:
        """Return the chunks that go over tree number `lane`."""
        return list(chunks(*block_of(lane, even_bounds(self.elements, len(self.trees))), self.chunk))

    def _turns(self, v: int, lag: Callable[[Tree, int], int]) -> Iterator[tuple[int, Slice]]:
        """Yield chunks in order of time: a rank gets chunk k of a tree in round k + `lag`.

        With two trees a rank is a leaf in one; its chunks there are sent before the sums that it waits for in the
        other. In order of number, each tree would always wait for the other.
        """
        if len(self.trees) == 1:
            return ((0, chunk) for chunk in self.slices(0))
        lags = [lag(tree, v) for tree in self.trees]
        timed = [(k + lags[lane], lane, s) for lane in range(len(lags)) for k, s in enumerate(self.slices(lane))]
        return ((lane, chunk) for _, lane, chunk in sorted(timed))

    def _up(self, writer: StepWriter, parent: int | None, children: Sequence[int], tag: int, chunk: Slice) -> None:
        """Add the children's chunks to this rank's, in a scratch slot or at the root in OUT; send the sum on."""
        place = OWN
        for child in children:
            first = place == OWN
            slot, source = writer.slot(0 if first else 1), place
            place = OUT if parent is None else slot if first else place
            writer.recv_add(self.order[child], tag, chunk, slot, source, place)
        if parent is not None:
            writer.send(self.order[parent], tag, chunk, place)

    def _down(self, writer: StepWriter, parent: int | None, children: Sequence[int], tag: int, chunk: Slice) -> None:
        """Receive the parent's chunk and send it on, first to the child with most ranks below it."""
        if parent is not None:
            writer.recv(self.order[parent], tag, chunk)
        for child in reversed(children):
            writer.send(self.order[child], tag, chunk, OUT)
