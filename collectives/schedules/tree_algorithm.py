"""Algorithms over trees: the base of those that register, and the trees by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from collectives.errors import AlgorithmError
from collectives.schedules.registry import Algorithm, CollectiveTime, StepInputs, find
from collectives.schedules.schedule import Steps
from collectives.schedules.tree_steps import TreeSteps
from collectives.schedules.trees import Tree
from collectives.verbs import scheduled

if TYPE_CHECKING:
    from collectives.model.clusters import Cluster

MOST_DIGITS = 9  # of a number in a name


class Hops(NamedTuple):
    """The messages of one chunk over a tree whose ranks fill node after node: within nodes, and between nodes.

    `path`: those one after the other, from the farthest rank to the root. `busiest`: those that the busiest rank
    receives in a reduce. `joins`: the additions of that rank.
    """

    path: tuple[float, float]
    busiest: tuple[float, float]
    joins: float


class TreeAlgorithm(Algorithm):
    """An algorithm over trees.

    One over a single plain tree sets `tree`, and `letter` if hierarchies may use it.
    """

    tree: Callable[[int], Tree]
    letter: str = ""

    def trees(self, name: str, size: int, chain_size: int | None = None) -> list[Tree]:
        """Return the trees over which the data is spread evenly. Raise AlgorithmError for impossible sizes."""
        self.takes_no_number(name)
        return [type(self).tree(size)]

    def cost(self, verb: str, name: str, links: Cluster, ranks: int, nbytes: int, chunk: int) -> CollectiveTime | None:
        """Return the time up, the time down, or both, by the hops.

        What the busiest rank needs for each further chunk comes after the first one has passed all hops.
        """
        found = self.hops(name, ranks, min(ranks, links.ranks_per_node))
        if not found:
            return None
        first, each, count = 0.0, 0.0, nbytes / chunk
        inside, across = links.alpha_in + links.beta_in * chunk, links.alpha + links.beta * chunk
        for way in (True,) * scheduled(verb).joins + (False,) * scheduled(verb).spreads:
            add = links.gamma * chunk * way
            first += found.path[0] * (inside + add) + found.path[1] * (across + add)
            each += max(found.busiest[0] * inside + found.busiest[1] * across, found.joins * add)
        return CollectiveTime(first + (count - 1) * each, count * each, name, chunk)

    def hops(self, name: str, ranks: int, inside: int) -> Hops | None:
        """Return the hops over `ranks` ranks, `inside` of them in a node; None by default: there is no closed form."""
        return None

    def takes(self, name: str) -> bool:
        """Return whether `name` is this algorithm's name, with or without numbers."""
        return self.is_numbered(name, self.name)

    def is_numbered(self, name: str, base: str) -> bool:
        """Return whether `name` is `base` with any numbers."""
        return bool(re.fullmatch(rf"{re.escape(base)}(-[0-9]+)*", name))

    def takes_no_number(self, name: str) -> None:
        """Raise AlgorithmError for a name with a number."""
        if name != self.name:
            raise AlgorithmError(f"algorithm '{name}': '{self.name}' takes no number")

    def steps(self, op: str, name: str, inputs: StepInputs, chain_size: int | None = None) -> Steps:
        """Return the steps over the trees."""
        trees, verb = self.trees(name, len(inputs.order), chain_size), scheduled(op)
        return TreeSteps(trees, *inputs.whole, up=verb.joins, down=verb.spreads)


def numbers(name: str) -> list[int]:
    """Return the numbers in a name: 8 and 4 for ccb-8-4. Raise AlgorithmError for one of too many digits."""
    found = name.split("-")[1:]
    if long := next((number for number in found if len(number) > MOST_DIGITS), ""):
        raise AlgorithmError(f"algorithm '{name[:40]}': a number of {len(long)} digits; expected {MOST_DIGITS} at most")
    return [int(number) for number in found]


def make_trees(name: str, size: int, chain_size: int | None = None) -> list[Tree]:
    """Return the trees over which algorithm `name` spreads the data evenly: one, or two for `two-tree`.

    Raise AlgorithmError for an unknown name, an algorithm without trees, and impossible sizes.
    """
    algorithm = find(name)
    if not isinstance(algorithm, TreeAlgorithm):
        raise AlgorithmError(f"algorithm '{name}' has no trees")
    return algorithm.trees(name, size, chain_size)
