"""S-Caffe's own form of a hierarchical reduce: one level after the other (S-Caffe, section 5).

A level begins on a rank when the level below has ended there, and only chains work in chunks; it is here to be
compared with. Between the levels a rank keeps its group's sum in OUT.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collectives.errors import AlgorithmError
from collectives.schedules.chain import Chain
from collectives.schedules.hierarchy import Hierarchy
from collectives.schedules.registry import Algorithm, StepInputs, register
from collectives.schedules.schedule import OUT, OWN, Slice, Step, StepWriter, chunks
from collectives.schedules.tree_algorithm import make_trees
from collectives.schedules.trees import Tree

IN_TURN = ":levels"


@dataclass(frozen=True)
class LevelSteps:
    """What all ranks share; `order` maps virtual ranks to ranks, `virtual` back."""

    tree: Tree
    order: Sequence[int]
    virtual: Sequence[int]
    elements: int
    chunk: int
    depth: int

    def result(self, rank: int) -> Slice:
        return (0, self.elements) if self.virtual[rank] == 0 else (0, 0)

    def of(self, rank: int) -> list[Step]:
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
        """Add the children's pieces to what stands at `place`, and return where the sum is: in OUT if it is kept."""
        for child in children:
            slot = writer.slot(0 if place == OWN else 1)
            source, place = place, OUT if keep or place == OUT else slot if place == OWN else place
            writer.recv_add(self.order[child], 0, piece, slot, source, place)
        return place

    def _chunks(self) -> Iterator[int]:
        """Yield the elements in a message for each level, lowest first."""
        tree = self.tree
        while isinstance(tree, Hierarchy):
            yield self.chunk if tree.lower is Chain else max(1, self.elements)
            tree = tree.upper
        yield self.chunk if isinstance(tree, Chain) else max(1, self.elements)


@register
class LevelsAlgorithm(Algorithm):
    name = "levels"
    about = "`:levels` after a tree's name: S-Caffe's own form, one level after the other; to compare with"
    rounds = "the sum of the levels'"
    verbs = ("reduce",)

    @property
    def examples(self) -> tuple[str, ...]:
        return (f"cb-8{IN_TURN}",)

    @property
    def samples(self) -> tuple[str, ...]:
        return tuple(f"{name}{IN_TURN}" for name in ("cb-4", "chain", "binomial", "flat", "kary-3", "cc-3", "ccb-2"))

    def takes(self, name: str) -> bool:
        return name.endswith(IN_TURN)

    def tried(self, verb: str, ranks: int) -> tuple[str, ...]:
        return ()

    def modelled(self, verb: str) -> tuple[str, ...]:
        return ()

    def slot_elements(self, chunk: int, elements: int) -> int:
        return elements

    def refusal(self, verb: str, name: str) -> str:
        return f"{verb} has no algorithm '{name}': '{IN_TURN}' goes with a reduce over one tree"

    def steps(self, op: str, name: str, inputs: StepInputs, chain_size: int | None = None) -> LevelSteps:
        trees = make_trees(name.removesuffix(IN_TURN), len(inputs.order), chain_size)
        if len(trees) > 1:
            raise AlgorithmError(self.refusal(op, name))
        return LevelSteps(trees[0], *inputs)
