"""Closed forms of a collective's time, for any number of ranks: how trees and exchanges fill a described cluster.

S-Caffe's equations 1 and 2 and swCaffe's 2 to 6, with the messages within a node apart from those between nodes. A tree
of chunks takes what its busiest rank needs for each further chunk, after the first one has come through all hops, which
the algorithm's file counts. An algorithm without a closed form is counted from its steps. Tests hold the forms against
the events of up to 1,024 ranks; `leaders-NAME`, which has no schedule, against sums by hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil

from collectives.model.clusters import Cluster
from collectives.model.predicting import MANY_RANKS, best_row
from collectives.schedules.algorithms import LEADERS, make_schedule
from collectives.schedules.exchange import SHARE, SUM, halves_of
from collectives.schedules.halving import HalvingAlgorithm, blocks_of_rounds
from collectives.schedules.registry import find
from collectives.schedules.ring import RingAlgorithm
from collectives.schedules.tree_algorithm import Hops, TreeAlgorithm
from collectives.verbs import scheduled
from scaffe.errors import ScaffeError

CHUNKS = tuple(kib << 10 for kib in (64, 256, 1024, 4096))
SOME = 4096  # ranks that stand for all
ITEMSIZE = 4  # bytes of an element
# Names that are tried:
TREES = "binomial", "chain", "cb-4", "cb-8"
EXCHANGES = RingAlgorithm.name, HalvingAlgorithm.name
S_CAFFE = "binomial", "chain", "cb-4", "cb-8"  # of its section 5
TWO_TREE = "two-tree"
BETWEEN = *TREES, TWO_TREE, *EXCHANGES  # the leaders of nodes
SEARCHED = *TREES, "cb-16", TWO_TREE, *EXCHANGES, *(LEADERS + name for name in BETWEEN)


@dataclass(frozen=True)
class CollectiveTime:
    """A collective's seconds, those in which its busiest rank sends or receives, and the algorithm and its chunk."""

    seconds: float
    busy: float
    algorithm: str
    chunk: int


@dataclass(frozen=True)
class ClosedForms:
    """The costs of collectives over `ranks` ranks, which fill node after node.

    `names`: registered algorithms to choose from, or `leaders-NAME`; any other raises AlgorithmError. `leaders`: ranks
    of a node that send between nodes in `leaders-NAME`: one, as on GPUs, or, for any greater number, each rank its
    slice, as in host memory.
    """

    links: Cluster
    ranks: int
    names: Sequence[str] = TREES + EXCHANGES
    leaders: int = 1

    def __post_init__(self) -> None:
        for name in self.names:
            _check(name.removeprefix(LEADERS))

    @property
    def inside(self) -> int:
        """Ranks of a node."""
        return min(self.ranks, self.links.ranks_per_node)

    @property
    def nodes(self) -> int:
        """Nodes, the last of which may be filled in part."""
        return ceil(self.ranks / self.inside)

    @property
    def has_leaders(self) -> bool:
        """Return whether there are several nodes of several ranks; else `leaders-NAME` has nothing to do."""
        return self.inside > 1 and self.nodes > 1

    def cost(self, what: str, nbytes: int) -> CollectiveTime:
        """Return the cost of the fastest algorithm for a verb that has schedules.

        Raise ScaffeError if none of `names` does it.
        """
        return _cheapest(self, what, nbytes)

    def costs(self, what: str, nbytes: int) -> Iterator[CollectiveTime]:
        """Iterate over the costs of all algorithms, with all chunks."""
        for name in self.names:
            if name.startswith(LEADERS):
                yield from self.led(name, what, nbytes)
            elif what in find(name).verbs and (name != TWO_TREE or self._has_ports):
                yield from self._of(name, what, nbytes)

    def _of(self, name: str, what: str, nbytes: int) -> Iterator[CollectiveTime]:
        """Yield the costs of an algorithm that does `what`, by its closed form if it has one, else by its steps."""
        if name in EXCHANGES:
            yield self.exchange(name, nbytes, what)
        elif not self._hops(name):
            yield self._counted(name, what, nbytes)
        else:
            for chunk in [c for c in CHUNKS if c < nbytes] + [nbytes]:
                up, down = (self.tree(name, nbytes, chunk, is_up) for is_up in (True, False))
                both = CollectiveTime(up.seconds + down.seconds, up.busy + down.busy, name, chunk)
                yield {"reduce": up, "bcast": down, "allreduce": both}[what]

    def _counted(self, name: str, what: str, nbytes: int) -> CollectiveTime:
        """Return the cost of an algorithm's steps. Raise ScaffeError where they are too many."""
        is_few, elements = self.ranks < MANY_RANKS, ceil(nbytes / ITEMSIZE)
        row = best_row(what, name, self.links, self.ranks, elements, ITEMSIZE) if is_few else None
        if row is None:
            raise ScaffeError(f"'{name}' has no closed form, and too many steps over {self.ranks} ranks to count")
        return CollectiveTime(row.seconds, row.seconds, name, row.chunk)

    @property
    def _has_ports(self) -> bool:
        """Return whether each rank has an adapter of its own; else the two trees crowd those of a node."""
        return self.links.nics >= self.inside or self.nodes == 1

    def led(self, name: str, what: str, nbytes: int) -> Iterator[CollectiveTime]:
        """Yield the costs of `leaders-NAME`: within nodes, then NAME between them, then within nodes.

        One leader gets and gives all bytes along the fastest tree of its node. Where each rank has a slice, it gets
        that of the others and gives them its own, and all share the adapters; a reduce then brings the slices to the
        root, as a broadcast begins. Blocks need no such way: those of a node's ranks are its slices.
        """
        links, g, has_slices = self.links, self.inside, self.leaders > 1
        if not self.has_leaders:
            return
        part, verb = nbytes * (1 - 1 / g), scheduled(what)
        if has_slices:
            ways = 1 if verb.has_blocks else 2
            within = ways * ((g - 1) * links.alpha_in + part * links.beta_in) + links.gamma * part * verb.joins
        else:
            node = ClosedForms(links, g, TREES)
            within = (
                verb.joins * node.cost("reduce", nbytes).seconds + verb.spreads * node.cost("bcast", nbytes).seconds
            )
            if verb.has_blocks:  # a leader has those of its node
                within += (g - 1) * links.alpha_in + part / self.nodes * links.beta_in
        count = g if has_slices else 1
        own = replace(links, ranks_per_node=1, beta=links.beta * max(1.0, count / links.nics), nics=1)
        plain = ClosedForms(own, self.nodes, (name.removeprefix(LEADERS),))
        for one in plain.costs(what, ceil(nbytes / count)):
            seconds = within + one.seconds
            yield CollectiveTime(seconds, seconds, name, one.chunk)

    def tree(self, name: str, nbytes: int, chunk: int, adds: bool) -> CollectiveTime:
        """Return the cost of a tree: `adds` for a reduce, else a broadcast. Raise ScaffeError without a closed form."""
        found = self._hops(name)
        if not found:
            raise ScaffeError(f"'{name}' has no closed form")
        hops, received, joins = found
        add = self.links.gamma * chunk * adds
        inside = self.links.alpha_in + self.links.beta_in * chunk
        across = self.links.alpha + self.links.beta * chunk
        first = hops[0] * (inside + add) + hops[1] * (across + add)
        each = max(received[0] * inside + received[1] * across, joins * add)
        count = nbytes / chunk
        return CollectiveTime(first + (count - 1) * each, count * each, name, chunk)

    def _hops(self, name: str) -> Hops | None:
        """Return a tree's hops, None for an algorithm without a closed form."""
        found = find(name)
        return found.hops(name, self.ranks, self.inside) if isinstance(found, TreeAlgorithm) else None

    def exchange(self, name: str, nbytes: int, what: str = "allreduce") -> CollectiveTime:
        """Return the cost of an allreduce, or of one of its halves `what`.

        It goes by a ring, by recursive halving renumbered over supernodes, or by steps.
        """
        c, p = self.links, self.ranks
        if p == 1:
            return CollectiveTime(0.0, 0.0, name, nbytes)
        if name not in EXCHANGES:
            return self._counted(name, what, nbytes)
        if name == RingAlgorithm.name:
            alpha, beta = (c.alpha, c.beta) if self.nodes > 1 else (c.alpha_in, c.beta_in)
            seconds = find(name).seconds(what, p, nbytes, CHUNKS[-1], alpha, beta, c.gamma)  # type: ignore
        else:
            seconds = self._halving(nbytes, halves_of(scheduled(what)))
        return CollectiveTime(seconds, seconds, name, CHUNKS[-1])

    def _halving(self, nbytes: float, halves: Sequence[int] = (SUM, SHARE)) -> float:
        """Return swCaffe's equations 2, 5 and 6, round by round; a node's ranks share its adapters between nodes.

        A chunk is added while the next one comes. Where the ranks are no power of two, the largest groups count. Where
        a node's ranks are none, rounds stay in it that all its pairs could; where the supernodes are none, a round
        crosses them with the part of its bytes that the equations say.
        """
        c, p = self.links, self.ranks
        in_node = 1 << (min(p, self.inside).bit_length() - 1)
        per_supernode = (c.nodes_per_supernode or self.nodes) * self.inside
        supernodes = min(max(1, p // per_supernode), p // in_node)
        shared = max(1.0, self.inside / c.nics)
        crowded = max(shared, self.inside / c.nics * c.oversubscription)
        node = c.alpha_in, c.beta_in
        seconds = 0.0
        for parts in blocks_of_rounds(p):  # of p, which a rank sends
            across = min(1.0, max(0.0, in_node * supernodes / parts - 1))
            between = c.alpha, c.beta * (shared + (crowded - shared) * across)
            leaving = self._leaving(parts) if p & (p - 1) else 0  # of a node, in a round of groups that cross its end
            inside = (c.alpha, c.beta * max(1.0, leaving / c.nics)) if leaving else node
            added, moved = self._there_and_back(nbytes * parts / p, *(inside if parts < in_node else between))
            seconds += added * (SUM in halves) + moved * (SHARE in halves)
        return seconds

    def _leaving(self, distance: int) -> int:
        """Return how many of a node's ranks, at most, have a partner at this distance on the next node."""
        g = self.inside
        ranks = (v for v in range(min(self.ranks, SOME) - distance) if v // distance % 2 == 0)
        return max(Counter(v // g for v in ranks if v // g != (v + distance) // g).values(), default=0)

    def _there_and_back(self, nbytes: float, alpha: float, beta: float) -> tuple[float, float]:
        """Return the seconds in which two ranks send bytes, which are added, and get as many sums back, in chunks."""
        chunk, gamma = min(nbytes, CHUNKS[-1]), self.links.gamma
        moved = ceil(nbytes / chunk) * alpha + nbytes * beta
        added = max(moved + chunk * gamma, alpha + chunk * beta + nbytes * gamma)
        return added, moved


@cache
def _cheapest(forms: ClosedForms, what: str, nbytes: int) -> CollectiveTime:
    found = min(forms.costs(what, nbytes), key=lambda cost: cost.seconds, default=None)
    if not found:
        raise ScaffeError(f"no {what} over {forms.ranks} ranks by any of: {' '.join(forms.names)}")
    return found


@cache
def _check(name: str) -> None:
    """Raise AlgorithmError for an unknown name and for wrong numbers."""
    make_schedule(find(name).verbs[0], name, 1, 0)
