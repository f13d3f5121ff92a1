"""S-Caffe's own form of a hierarchical reduce: one level after the other (S-Caffe, section 5).

A level begins on a rank when the level below has ended there, and only chains work in chunks. It serves comparison.
Between the levels a rank keeps its group's sum in OUT.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collectives.errors import AlgorithmError
from collectives.schedules.chain import Chain
from collectives.schedules.hierarchy import Hierarchy
from collectives.schedules.registry import Algorithm, StepInputs, register
from collectives.schedules.schedule import OUT, OWN, Step, StepWriter, chunks
from collectives.schedules.tree_algorithm import make_trees
from collectives.schedules.trees import Tree
from collectives.verbs import Slice

IN_TURN = ":levels"


@dataclass(frozen=True)
class LevelSteps:
    """The steps of all ranks. `order` maps virtual ranks to ranks, `virtual` maps ranks back."""

    tree: Tree
    order: Sequence[int]
    virtual: Sequence[int]
    elements: int
    chunk: int
    depth: int

    def of(self, rank: int) -> list[Step]:
        """Return the steps of `rank`, level by level."""
        v, writer = self.virtual[rank], StepWriter(self.depth)
        parent, last = self.tree.parent(v), self.tree.level(v)
        place = OWN
        for level, (children, chunk) in enumerate(zip(self.tree.levels(v), self._chunks(), strict=False)):
            keep = parent is None or level < last
            for piece in chunks(0, self.elements, chunk):
                sum_at = self._add(writer, children, piece, place, keep)
                if not keep:
                    writer.send(self.order[parent or 0], 0, piece, sum_at)
            if children:
                place = OUT
        if len(self.order) == 1 and self.elements:
            writer.copy((0, self.elements))
        return writer.steps

    def _add(self, writer: StepWriter, children: Sequence[int], piece: Slice, place: int, keep: bool) -> int:
        """Add the children's pieces to the data at `place`; return the sum's place: OUT if it is kept."""
        for child in children:
            slot = writer.slot(0 if place == OWN else 1)
            source, place = place, OUT if keep or place == OUT else slot if place == OWN else place
            writer.recv_add(self.order[child], 0, piece, slot, source, place)
        return place

    def _chunks(self) -> Iterator[int]:
        """Yield the elements in a message of each level, lowest first."""
        tree = self.tree
        while isinstance(tree, Hierarchy):
            yield self.chunk if tree.lower is Chain else max(1, self.elements)
            tree = tree.upper
        yield self.chunk if isinstance(tree, Chain) else max(1, self.elements)


@register
class LevelsAlgorithm(Algorithm):
    """Algorithms `NAME:levels`, for comparison."""

    name = "levels"
    about = "`:levels` after a tree's name: S-Caffe's own form, one level after the other; for comparison"
    rounds = "the sum of the levels'"
    verbs = ("reduce",)

    @property
    def examples(self) -> tuple[str, ...]:
        """Return a name for lists."""
        return (f"cb-8{IN_TURN}",)

    @property
    def samples(self) -> tuple[str, ...]:
        """Return the names for tests."""
        return tuple(f"{name}{IN_TURN}" for name in ("cb-4", "chain", "binomial", "flat", "kary-3", "cc-3", "ccb-2"))

    def takes(self, name: str) -> bool:
        """Return whether `name` ends with `:levels`."""
        return name.endswith(IN_TURN)

    def tried(self, verb: str, ranks: int) -> tuple[str, ...]:
        """Return no name: it is for comparison."""
        return ()

    def modelled(self, verb: str) -> tuple[str, ...]:
        """Return no name: the model's table has rows of its own for S-Caffe's form."""
        return ()

    def slot_elements(self, chunk: int, elements: int) -> int:
        """Return the whole vector's length: some levels don't work in chunks."""
        return elements

    def refusal(self, verb: str, name: str) -> str:
        """Return the error's text: `:levels` is for a reduce over one tree."""
        return f"{verb} has no algorithm '{name}': '{IN_TURN}' goes with a reduce over one tree"

    def steps(self, op: str, name: str, inputs: StepInputs, chain_size: int | None = None) -> LevelSteps:
        """Return the steps. Raise AlgorithmError for two trees."""
        trees = make_trees(name.removesuffix(IN_TURN), len(inputs.order), chain_size)
        if len(trees) > 1:
            raise AlgorithmError(self.refusal(op, name))
        return LevelSteps(trees[0], *inputs.whole)
