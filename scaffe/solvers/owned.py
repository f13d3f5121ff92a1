"""Owned: the elements that a rank updates, and where arrays that have these alone hold them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate


class Owned:
    """Ranges of the packed arrays, ascending and apart; a shorter array has their elements one after the other."""

    def __init__(self, ranges: Sequence[slice]):
        self.ranges = list(ranges)
        self._starts = [one.start for one in self.ranges]
        self._places = list(accumulate((one.stop - one.start for one in self.ranges), initial=0))
        self.count = self._places[-1]

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same elements."""
        return isinstance(other, Owned) and self.ranges == other.ranges

    __hash__ = None  # type: ignore[assignment]

    def place(self, part: slice) -> slice:
        """Return where the shorter array has a part that lies within one range."""
        k = bisect_right(self._starts, part.start) - 1
        start = self._places[k] + part.start - self._starts[k]
        return slice(start, start + part.stop - part.start)

    def within(self, part: slice) -> list[slice]:
        """Return the owned elements of a part, in slices of the packed arrays that lie within one range each."""
        first = max(0, bisect_right(self._starts, part.start) - 1)
        found = (slice(max(one.start, part.start), min(one.stop, part.stop)) for one in self.ranges[first:])
        return [one for one in found if one.start < one.stop]
