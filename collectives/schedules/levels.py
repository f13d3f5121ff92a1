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
from collectives.schedules.registry import Algorithm, Layout, register
from collectives.schedules.schedule import OUT, OWN, Part, Slice, Step, chunks
from collectives.schedules.tree_algorithm import make_trees
from collectives.schedules.trees import Tree

IN_TURN = ":levels"


@dataclass(frozen=True)
class LevelPlan:
    """What all ranks share; `order` maps virtual ranks to ranks, `virtual` back."""

    tree: Tree
    order: Sequence[int]
    virtual: Sequence[int]
    elements: int
    chunk: int
    depth: int

    def block(self, rank: int) -> Slice:
        return (0, self.elements) if self.virtual[rank] == 0 else (0, 0)

    def part(self, rank: int) -> list[Step]:
        v, part = self.virtual[rank], Part(self.depth)
        parent, last = self.tree.parent(v), self.tree.level(v)
        place = OWN
        for level, (children, chunk) in enumerate(zip(self.tree.levels(v), self._chunks(), strict=False)):
            keep = parent is None or level < last
            for piece in chunks(0, self.elements, chunk):
                sum_at = self._add(part, children, piece, place, keep)
                if not keep:
                    part.send(self.order[parent or 0], 0, piece, sum_at)
            if children:
                place = OUT
        if len(self.order) == 1 and self.elements:
            part.copy((0, self.elements))
        return part.steps

    def _add(self, part: Part, children: Sequence[int], piece: Slice, place: int, keep: bool) -> int:
        """Add the children's pieces to what stands at `place`, and return where the sum is: in OUT if it is kept."""
        for child in children:
            slot = part.slot(0 if place == OWN else 1)
            source, place = place, OUT if keep or place == OUT else slot if place == OWN else place
            part.recv_add(self.order[child], 0, piece, slot, source, place)
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

    def plan(self, op: str, name: str, layout: Layout, chain_size: int | None = None) -> LevelPlan:
        trees = make_trees(name.removesuffix(IN_TURN), len(layout.order), chain_size)
        if len(trees) > 1:
            raise AlgorithmError(self.refusal(op, name))
        return LevelPlan(trees[0], *layout)
