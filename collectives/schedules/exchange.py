"""Exchanges: what the ring and recursive halving have in common.

Both cut the vector into blocks, sum each block on one rank (reduce-scatter) and hand the sums round along the same
way backwards (allgather). An allreduce of n bytes moves 2n(P - 1)/P bytes per rank, the least possible. Which ranks
are neighbours is the numbering's affair: `Group.order` for the ring, `Group.round_robin` for halving over supernodes
(swCaffe, section V.A).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from collectives.schedules.registry import Algorithm, StepInputs
from collectives.schedules.schedule import Slice, Step

SUM, SHARE = 0, 1  # tags: what is to be added, and sums that go round


@dataclass(frozen=True)
class ExchangeSteps(ABC):
    """What all ranks of an exchange share; `order` maps virtual ranks to ranks, `virtual` back."""

    order: Sequence[int]
    virtual: Sequence[int]
    elements: int
    chunk: int
    depth: int

    @property
    def size(self) -> int:
        return len(self.order)

    @abstractmethod
    def of(self, rank: int) -> list[Step]:
        """Return the steps of `rank`."""

    def result(self, rank: int) -> Slice:
        return 0, self.elements

    def _pieces(self, blocks: Sequence[Slice]) -> list[list[Slice]]:
        """Cut each of some blocks into the same number of pieces, none longer than a chunk."""
        longest = max(stop - start for start, stop in blocks)
        count = max(1, -(-longest // self.chunk))
        return [pieces(start, stop, count) for start, stop in blocks]


class ExchangeAlgorithm(Algorithm):
    """An algorithm whose plans are exchanges."""

    verbs = ("allreduce",)
    between_nodes = ("allreduce",)
    exchange: type[ExchangeSteps]
    neighbours = False  # whether each rank sends to the next one only, so that one rank's data leaves a node

    def steps(self, op: str, name: str, inputs: StepInputs, chain_size: int | None = None) -> ExchangeSteps:
        return self.exchange(*inputs)

    def tabled(self, verb: str, ranks: int) -> tuple[str, ...]:
        return (self.name,)

    @abstractmethod
    def seconds(self, ranks: int, nbytes: float, chunk_bytes: int, alpha: float, beta: float, gamma: float) -> float:
        """Return the closed form of an allreduce's time, in seconds.

        A message of b bytes takes `alpha` + b `beta` seconds, adding b bytes b `gamma`.
        """


def block(elements: int, parts: int, number: int) -> Slice:
    """Return one of `parts` nearly equal blocks that make up all elements."""
    return elements * number // parts, elements * (number + 1) // parts


def pieces(start: int, stop: int, count: int) -> list[Slice]:
    """Cut [start, stop) into `count` nearly equal pieces, some of them empty where there are fewer elements."""
    cuts = [start + (stop - start) * i // count for i in range(count + 1)]
    return list(pairwise(cuts))
