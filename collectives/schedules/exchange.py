"""Exchanges: the common part of the ring and of recursive halving.

Both cut the vector into blocks, sum each block on one rank (reduce-scatter) and pass the sums back the same way
(allgather). An allreduce of n bytes moves 2n(P - 1)/P bytes per rank, the minimum. The numbering decides which ranks
are neighbours: `Group.order` for the ring, `Group.round_robin` for halving over supernodes (swCaffe, section V.A).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from collectives.schedules.registry import Algorithm, StepInputs
from collectives.schedules.schedule import Slice, Step

SUM, SHARE = 0, 1  # tags: data to be added, and sums


@dataclass(frozen=True)
class ExchangeSteps(ABC):
    """The steps of all ranks of an exchange. `order` maps virtual ranks to ranks, `virtual` maps ranks back."""

    order: Sequence[int]
    virtual: Sequence[int]
    elements: int
    chunk: int
    depth: int

    @property
    def size(self) -> int:
        """Return the number of ranks."""
        return len(self.order)

    @abstractmethod
    def of(self, rank: int) -> list[Step]:
        """Return the steps of `rank`."""

    def result(self, rank: int) -> Slice:
        """Return the whole vector."""
        return 0, self.elements

    def _pieces(self, blocks: Sequence[Slice]) -> list[list[Slice]]:
        """Cut each block into the same number of pieces, none longer than a chunk."""
        longest = max(stop - start for start, stop in blocks)
        count = max(1, -(-longest // self.chunk))
        return [pieces(start, stop, count) for start, stop in blocks]


class ExchangeAlgorithm(Algorithm):
    """An algorithm whose steps are an exchange."""

    verbs = ("allreduce",)
    between_nodes = ("allreduce",)
    exchange: type[ExchangeSteps]
    neighbours = False  # whether each rank sends to the next one only, so that one rank's data leaves a node

    def steps(self, op: str, name: str, inputs: StepInputs, chain_size: int | None = None) -> ExchangeSteps:
        """Return the exchange."""
        return self.exchange(*inputs)

    def tabled(self, verb: str, ranks: int) -> tuple[str, ...]:
        """Return the name."""
        return (self.name,)

    @abstractmethod
    def seconds(self, ranks: int, nbytes: float, chunk_bytes: int, alpha: float, beta: float, gamma: float) -> float:
        """Return the closed form of an allreduce's time, in seconds.

        A message of b bytes takes `alpha` + b `beta` seconds, adding b bytes takes b `gamma`.
        """


def block(elements: int, parts: int, number: int) -> Slice:
    """Return the start and stop of block `number` of `parts` nearly equal blocks of all elements."""
    return elements * number // parts, elements * (number + 1) // parts


def pieces(start: int, stop: int, count: int) -> list[Slice]:
    """Cut [start, stop) into `count` nearly equal pieces; some are empty where there are fewer elements."""
    cuts = [start + (stop - start) * i // count for i in range(count + 1)]
    return list(pairwise(cuts))
