"""Waiting for records: how long a net waits for its data, and what reduces that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from readers.waited import Waited

T = TypeVar("T")
THRESHOLD = 0.05  # of the time: a smaller share gets no advice


class Waiting(Protocol):
    """A layer, of which only the waits for records are read."""

    @property
    def waited(self) -> Waited | None:
        """The waits for records; None for a layer that reads none."""


class Layered(Protocol):
    """A net, of which only the layers are read."""

    @property
    def layers(self) -> Iterable[Waiting]:
        """All layers."""


class Gathering(Protocol):
    """The ranks, which gather a value of each."""

    def allgather(self, value: T, /) -> list[T]:
        """Return all ranks' values on all ranks. Collective."""


def of_net(net: Layered) -> Waited:
    """Return the sum of what the net's data layers waited for."""
    total = Waited()
    for one in (waited for layer in net.layers if (waited := layer.waited) is not None):
        total.seconds += one.seconds
        total.reading += one.reading
        total.transforming += one.transforming
    return total


def describe(world: Gathering, nets: Sequence[Layered], seconds: float, threads: int) -> str:
    """Return the share of `seconds` of training that all ranks waited for records, with advice. Collective.

    `nets` are those of this rank's instances, the mean of whose waits counts. `threads` is the number of reader threads
    of each data layer. Return "" if no rank has a data layer.
    """
    mine = [of_net(net) for net in nets]
    seconds_waited = sum(one.seconds for one in mine) / len(mine)
    reading, transforming = sum(one.reading for one in mine), sum(one.transforming for one in mine)
    ranks = world.allgather((seconds_waited, reading, transforming, seconds))
    return _describe(ranks, threads) if any(reading for _, reading, _, _ in ranks) else ""


def _describe(ranks: Sequence[tuple[float, float, float, float]], threads: int) -> str:
    waited, reading, transforming, total = (sum(values) for values in zip(*ranks, strict=True))
    shares = [waits / max(seconds, 1e-9) for waits, _, _, seconds in ranks]
    worst = max(range(len(shares)), key=lambda rank: shares[rank])
    text = f"{waited / max(total, 1e-9):.2%} of the time spent waiting for records"
    if len(ranks) > 1:
        text += f" (worst, rank {worst}: {shares[worst]:.2%})"
    return f"{text}; {remedy(reading, transforming, threads)}" if shares[worst] >= THRESHOLD else text


def remedy(reading: float, transforming: float, threads: int = 0) -> str:
    """Return what reduces waiting for records, given the seconds spent reading and transforming them."""
    if transforming > reading:
        what = "transforming them takes longest: give each rank another core, or store images at the net's size"
    else:
        what = "reading and decoding take longest: store images resized and undecoded, or on a faster disk"
    more = f"; or more than {threads} reader thread(s), --reader-threads, on cores of their own" if threads else ""
    return f"{what} (scaffe convert-imageset){more}"
