"""Neighbours: small parameters that lie side by side, which numpy updates in one call of each operation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.blobs.packed import ALIGNMENT
from scaffe.solvers.rule import Block, Rule

MOST = 1 << 15  # elements: a block that stays in the cache from operation to operation
GAP = ALIGNMENT // 4  # elements: between two parameters are fewer


class Neighbours:
    """Some of a rule's parameters: a single one, or small ones, whose elements in the packed arrays are `within`.

    Each element of several is updated by its parameter's rate and decay, bit for bit as in an update of its own, but
    for the sign of a zero, and for infinite parameters without decay.
    """

    def __init__(self, rule: Rule, within: slice):
        self.rule, self.within = rule, within
        self.indices: list[int] = []
        self._block: Block | None = None
        self._given: list[tuple[float, float]] = []

    @property
    def block(self) -> Block:
        """The elements of all, and of the gaps between them, which are zeros."""
        if self._block is None:
            self._block = self.rule.view(self.within)
            self._rates, self._decays = (np.zeros_like(self._block.data) for _ in range(2))
        return self._block

    def factors(self, rate: float, decay: float) -> tuple[np.ndarray, np.ndarray]:
        """Return each element's rate and decay, from those of the solver."""
        parameters = self.rule.packed.parameters
        given = [(self.rule.local_rate(i, rate), decay * parameters[i].decay) for i in self.indices]
        if self._given != given:
            self._given = given
            for i, (own_rate, own_decay) in zip(self.indices, given, strict=True):
                part = self.rule.within(i, self.within)
                elements = slice(part.start - self.within.start, part.stop - self.within.start)
                self._rates[elements], self._decays[elements] = own_rate, own_decay
        return self._rates, self._decays


def neighbours(rule: Rule, indices: Sequence[int], part: slice | None, most: int = MOST) -> list[Neighbours]:
    """Return all these parameters, or their elements within a part: those that lie side by side together.

    Together they have at most so many elements, and so has each of them as a whole.
    """
    found: list[Neighbours] = []
    for i in indices:
        mine = rule.within(i, part)
        if not (found and _joins(rule, found[-1], i, mine, most)):
            found.append(Neighbours(rule, mine))
        found[-1].within = slice(found[-1].within.start, mine.stop)
        found[-1].indices.append(i)
    return found


def _joins(rule: Rule, before: Neighbours, i: int, mine: slice, most: int) -> bool:
    """Return whether a parameter's elements can be updated with those before them."""
    both = [rule.packed.parameters[k] for k in (before.indices[-1], i)]
    if any(one.sharers or one.blob.count > most for one in both):
        return False
    together = slice(before.within.start, mine.stop)
    is_beside = 0 <= mine.start - before.within.stop < GAP and together.stop - together.start <= most
    return is_beside and rule.owned.within(together) == [together]
