"""Exchanges: the common part of the ring and of recursive halving.

Both consist of two halves, each a schedule of its own. `reduce_scatter` sums each block on one rank; `allgather` passes
the blocks the same way. An allreduce is one after the other: of n bytes it moves 2n(P - 1)/P per rank, the minimum. The
numbering decides which ranks are neighbours: `Group.order` for the ring, `Group.round_robin` for halving over
supernodes (swCaffe, section V.A).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from collectives.schedules.registry import Algorithm, CollectiveTime, StepInputs
from collectives.schedules.schedule import Step
from collectives.verbs import Slice, Verb, scheduled

if TYPE_CHECKING:
    from collectives.model.clusters import Cluster

SUM, SHARE = 0, 1  # the halves, and their messages' tags: data to be added, and sums


@dataclass(frozen=True)
class ExchangeSteps(ABC):
    """The steps of all ranks of an exchange. `order` maps virtual ranks to ranks, `virtual` maps ranks back.

    `bounds` says where the ranks' blocks begin, `halves` which halves there are. The other fields are StepInputs'.
    """

    order: Sequence[int]
    virtual: Sequence[int]
    elements: int
    chunk: int
    depth: int
    bounds: Sequence[int]
    blockwise: bool
    halves: tuple[int, ...]

    @property
    def size(self) -> int:
        """Return the number of ranks."""
        return len(self.order)

    @property
    def together(self) -> int:
        """Return how many pieces a rank has sent before it waits for the first one of as many."""
        return max(1, self.depth // 2)

    @abstractmethod
    def of(self, rank: int) -> list[Step]:
        """Return the steps of `rank`."""

    def pieces(self, part: Slice) -> list[Slice]:
        """Cut a part of the vector into nearly equal pieces, none longer than a chunk and none empty."""
        start, stop = part
        return pieces(start, stop, -(-(stop - start) // self.chunk)) if start < stop else []


class ExchangeAlgorithm(Algorithm):
    """An algorithm whose steps are an exchange."""

    verbs = ("allreduce", "reduce_scatter", "allgather")
    between_nodes = verbs
    exchange: type[ExchangeSteps]
    most_depth = 16  # a rank that is busy for some ms, as one that computes, then delays no other

    def steps(self, op: str, name: str, inputs: StepInputs, chain_size: int | None = None) -> ExchangeSteps:
        """Return the exchange."""
        return self.exchange(*inputs, halves=halves_of(scheduled(op)))

    def tabled(self, verb: str, ranks: int) -> tuple[str, ...]:
        """Return the name."""
        return (self.name,)

    def cost(self, verb: str, name: str, links: Cluster, ranks: int, nbytes: int, chunk: int) -> CollectiveTime:
        """Return the sum of the halves; their ranks are busy all the time."""
        times = [self.half_seconds(half, links, ranks, nbytes, chunk) for half in halves_of(scheduled(verb))]
        seconds = sum(times) if ranks > 1 else 0.0
        return CollectiveTime(seconds, seconds, name, chunk)

    @abstractmethod
    def half_seconds(self, half: int, links: Cluster, ranks: int, nbytes: float, chunk: int) -> float:
        """Return the seconds of one half: SUM or SHARE."""


def halves_of(verb: Verb) -> tuple[int, ...]:
    """Return the halves of an exchange for a verb."""
    return (SUM,) * verb.joins + (SHARE,) * verb.spreads


def pieces(start: int, stop: int, count: int) -> list[Slice]:
    """Cut [start, stop) into `count` nearly equal pieces; some are empty where there are fewer elements."""
    cuts = [start + (stop - start) * i // count for i in range(count + 1)]
    return list(pairwise(cuts))
