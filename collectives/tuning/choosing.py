"""Choosing: which of several candidates is best at each size, in bounded time; it asks a clock and knows no MPI.

`Seconds` maps candidates to their times. `collectives.tune` measures them, `collectives.tuning.modelled` predicts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from collectives.schedules import registry
from collectives.schedules.algorithms import LEADERS, OTHERS
from collectives.tuning.table import HOST, Row, Shape

FAR = 1.5  # candidates that take this many times longer than the best are timed once
GAIN = 0.95  # the fraction of the MPI library's time, or of the last choice's, below which a candidate replaces it
SMALL, SMALL_GAIN = 1 << 16, 5e-6  # below so many bytes, so many seconds must be gained too
ROUNDS = 5


class Candidate(NamedTuple):
    """An algorithm and its chunk in bytes, 0 where it has none."""

    algorithm: str
    chunk_bytes: int = 0

    def __str__(self) -> str:
        """Return both in words."""
        return self.algorithm + (f" in {self.chunk_bytes} bytes" if self.chunk_bytes else "")


LIBRARY = Candidate("mpi")
Seconds = Mapping[Candidate, float]


def algorithms(op: str, shape: Shape, reaches: bool) -> list[str]:
    """Return the algorithms that may be best on a shape, likeliest first, without the MPI library's own.

    `reaches`: the ranks of a node can read each other's arrays.
    """
    ranks = shape.nodes * max(shape.ranks, 1)
    names = [name for each in registry.algorithms(op) for name in each.tried(op, ranks)] if ranks > 1 else []
    if shape.nodes == 1:
        return ["slices", *names[:1]] if reaches else names
    if reaches and shape.ranks > 1:
        between = [each.name for each in registry.algorithms(op) if op in each.between_nodes]
        names[1:1] = [f"{LEADERS}{name}" for name in (*between, LIBRARY.algorithm)]
    return names


def candidates(names: Iterable[str], chunks: Sequence[int] | None, nbytes: int) -> list[Candidate]:
    """Return each algorithm of `names` with each chunk of which a message of `nbytes` has several, or the smallest.

    Without `chunks` an algorithm's own sizes are taken.
    """
    found: list[Candidate] = []
    for name in names:
        plain = name.removeprefix(LEADERS)
        if plain in OTHERS:
            found.append(Candidate(name))
        else:
            sizes = chunks or registry.find(plain).chunk_bytes
            able = [chunk for chunk in sizes if chunk < nbytes] or [min(sizes)]
            found += [Candidate(name, chunk) for chunk in able]
    return found


def search(
    tried: Sequence[Candidate], clock: Callable[[Candidate], float], left: Callable[[], float], rounds: int = ROUNDS
) -> dict[Candidate, float]:
    """Return the median seconds of the candidates near the best; always of LIBRARY and of one other.

    `clock` times each candidate once; those far from the best are dropped. The others take turns for `rounds` rounds,
    or until `left` returns no time.
    """
    times = {LIBRARY: [clock(LIBRARY)]}
    for candidate in tried:
        if len(times) > 1 and left() <= 0:
            break
        times[candidate] = [clock(candidate)]
    best = min(found[0] for found in times.values())
    times = {one: found for one, found in times.items() if one == LIBRARY or found[0] <= FAR * best}
    for _ in range(rounds - 1):
        if left() <= 0:
            break
        for candidate, found in times.items():
            found.append(clock(candidate))
    return {candidate: float(np.median(found)) for candidate, found in times.items()}


def decide(seconds: Seconds, nbytes: int, before: Candidate = LIBRARY) -> Candidate:
    """Return the candidate to use, given `before`, the one used at the next smaller size.

    The MPI library is kept where little is gained, and so is the candidate used before.
    """
    best = min(seconds, key=lambda candidate: seconds[candidate])
    library = seconds[LIBRARY]

    def gains(candidate: Candidate) -> bool:
        gain = library - seconds[candidate]
        return gain > SMALL_GAIN * (nbytes < SMALL) and seconds[candidate] <= GAIN * library

    if not gains(best):
        return LIBRARY
    stays = before in seconds and gains(before) and GAIN * seconds[before] <= seconds[best]
    return before if stays else best


def rows(
    op: str, shape: Shape, shared: bool, found: Mapping[int, Seconds], source: str, memory: str = HOST
) -> list[Row]:
    """Return a row for each size in `found` at which the choice changes; below them the MPI library's."""
    given = op, shape.nodes, shape.ranks, shared, 0, LIBRARY.algorithm
    made = [Row(*given, network=shape.network, source=source, memory=memory)]
    before = LIBRARY
    for nbytes, seconds in sorted(found.items()):
        choice = decide(seconds, nbytes, before)
        if choice != before:
            made.append(_row(made[0], nbytes, choice, seconds))
        before = choice
    return made


def _row(like: Row, nbytes: int, choice: Candidate, seconds: Seconds) -> Row:
    """Return the row of a choice, with the next best."""
    others = sorted((candidate for candidate in seconds if candidate != choice), key=lambda one: seconds[one])
    return replace(
        like,
        from_bytes=nbytes,
        algorithm=choice.algorithm,
        chunk_bytes=choice.chunk_bytes,
        seconds=_short(seconds[choice]),
        library_seconds=_short(seconds[LIBRARY]),
        next_best=str(others[0]) if others else "",
        next_seconds=_short(seconds[others[0]]) if others else 0.0,
    )


def _short(seconds: float) -> float:
    """Return seconds with four significant digits."""
    return float(f"{seconds:.4g}")
