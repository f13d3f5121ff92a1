"""Closed forms: the fastest of some algorithms for a collective, for any number of ranks of a described cluster.

Each algorithm's file has its cost (`collectives.model.cost`): S-Caffe's equations 1 and 2 and swCaffe's 2 to 6, with
the messages within a node apart from those between nodes. Tests hold them against the events of up to 1,024 ranks;
`leaders-NAME`, which has no schedule, against sums by hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil

from collectives.model import cost
from collectives.model.clusters import Cluster
from collectives.schedules.algorithms import LEADERS, make_schedule
from collectives.schedules.halving import HalvingAlgorithm
from collectives.schedules.registry import CollectiveTime, find
from collectives.schedules.ring import RingAlgorithm
from collectives.verbs import scheduled
from scaffe.errors import ScaffeError

CHUNKS = tuple(kib << 10 for kib in (64, 256, 1024, 4096))
ITEMSIZE = 4  # bytes of an element
# Names that are tried:
TREES = "binomial", "chain", "cb-4", "cb-8"
EXCHANGES = RingAlgorithm.name, HalvingAlgorithm.name
S_CAFFE = "binomial", "chain", "cb-4", "cb-8"  # of its section 5
TWO_TREE = "two-tree"
BETWEEN = *TREES, TWO_TREE, *EXCHANGES  # the leaders of nodes
SEARCHED = *TREES, "cb-16", TWO_TREE, *EXCHANGES, *(LEADERS + name for name in BETWEEN)


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
        """Iterate over the costs of all algorithms that do `what`, each in its best chunk."""
        for name in self.names:
            if name.startswith(LEADERS):
                yield from self.led(name, what, nbytes)
            elif what in find(name).verbs and (name != TWO_TREE or self._has_ports):
                some = CHUNKS[-1:] if name in EXCHANGES else [c for c in CHUNKS if c < nbytes] + [nbytes]
                yield cost(what, name, self.links, self.ranks, nbytes, some, ITEMSIZE)

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
        plain = ClosedForms(links.of_nodes(count), self.nodes, (name.removeprefix(LEADERS),))
        for one in plain.costs(what, ceil(nbytes / count)):
            seconds = within + one.seconds
            yield CollectiveTime(seconds, seconds, name, one.chunk)


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
