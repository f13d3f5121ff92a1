"""Ways: which of a pass's ways is taken, of those that can be built and have room to work in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Protocol, TypeVar

from scaffe.choices import seconds
from scaffe.errors import CudnnError


class Way(Protocol):
    """A way to do a piece of work: its name, and once it is built the bytes of workspace that it needs."""

    @property
    def name(self) -> str: ...

    @property
    def nbytes(self) -> int: ...

    def build(self) -> bool:
        """Make it ready to run; say whether it can be."""
        ...


W = TypeVar("W", bound=Way)


def fitting(ways: Iterable[W], limit: float) -> Iterator[W]:
    """Iterate over the ways that can be built, built, and need a workspace of at most `limit` bytes."""
    for way in ways:
        if way.build() and way.nbytes <= limit:
            yield way


def choose(ways: Iterable[W], name: str, limit: float) -> W | None:
    """Return the way of that name if it is there and fits, else the first that fits, None where none does."""
    ways, others = iter(ways), []
    for way in ways if name else ():
        if way.name == name and (found := next(fitting([way], limit), None)):
            return found
        others.append(way)
    return next(fitting([*others, *ways] if name else ways, limit), None)


def time(
    ways: Iterable[W],
    limit: float,
    runner: Callable[[W], Callable[[], object]],
    measure: Callable[[Callable[[], object]], float],
) -> dict[str, float]:
    """Return the seconds that each way takes that fits, the one to take without timing first.

    `runner` gives what runs a way, `measure` the seconds of such a run. Two ways of one name count as one; one that
    fails, or that the device has no memory for, is left out.
    """
    found: dict[str, float] = {}
    for way in fitting(ways, limit):
        if way.name not in found:
            best = min(found.values(), default=float("inf"))
            with suppress(MemoryError, CudnnError):
                found[way.name] = seconds(runner(way), best, measure)
    return found
