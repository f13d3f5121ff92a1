"""Algorithms over trees: what their files register, and the trees by name."""

from __future__ import annotations

import re
from collections.abc import Callable

from collectives.errors import AlgorithmError
from collectives.schedules.registry import Algorithm, StepInputs, find
from collectives.schedules.schedule import Steps
from collectives.schedules.tree_steps import TreeSteps
from collectives.schedules.trees import Tree


class TreeAlgorithm(Algorithm):
    """An algorithm over trees; those over one plain tree say which, and may have a letter in hierarchies' names."""

    tree: Callable[[int], Tree]
    letter: str = ""

    def trees(self, name: str, size: int, chain_size: int | None = None) -> list[Tree]:
        """Return the trees over which the data is spread evenly. Raise AlgorithmError for sizes that make none."""
        self.takes_no_number(name)
        return [type(self).tree(size)]

    def path(self, name: str, ranks: int) -> int:
        """Return how many ranks a chunk passes one after the other, as S-Caffe's equation 2 counts them."""
        return self.trees(name, ranks)[0].height(0) + 1

    def takes(self, name: str) -> bool:
        return self.is_numbered(name, self.name)

    def is_numbered(self, name: str, base: str) -> bool:
        return bool(re.fullmatch(rf"{re.escape(base)}(-\d+)*", name))

    def takes_no_number(self, name: str) -> None:
        if name != self.name:
            raise AlgorithmError(f"algorithm '{name}': '{self.name}' takes no number")

    def steps(self, op: str, name: str, inputs: StepInputs, chain_size: int | None = None) -> Steps:
        trees = self.trees(name, len(inputs.order), chain_size)
        return TreeSteps(trees, *inputs, up=op != "bcast", down=op != "reduce")


def numbers(name: str) -> list[int]:
    """Return the numbers of a name: 8 and 4 of ccb-8-4."""
    return [int(number) for number in name.split("-")[1:]]


def make_trees(name: str, size: int, chain_size: int | None = None) -> list[Tree]:
    """Return the trees over which algorithm `name` spreads the data evenly: one, or two for `two-tree`.

    AlgorithmError for an unknown name and for sizes that make no groups.
    """
    algorithm = find(name)
    if not isinstance(algorithm, TreeAlgorithm):
        raise AlgorithmError(f"algorithm '{name}' has no trees")
    return algorithm.trees(name, size, chain_size)
