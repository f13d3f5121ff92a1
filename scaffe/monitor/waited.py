"""Waited: how long a net waits for its data, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from readers.waited import Waited

if TYPE_CHECKING:
    from scaffe.net import Net
    from scaffe.parallel.world import World

WORTH = 0.05  # of the time: less is not worth a change


def of_net(net: Net) -> Waited:
    """Return what the data layers of a net waited, together."""
    total = Waited()
    for one in (waited for layer in net.layers if (waited := layer.waited) is not None):
        total.seconds += one.seconds
        total.reading += one.reading
        total.transforming += one.transforming
    return total


def describe(world: World, net: Net, seconds: float, threads: int) -> str:
    """Return which share of `seconds` of training all ranks' data was waited for, with advice; "" without data layers.

    Collective.
    """
    mine = of_net(net)
    ranks = world.allgather((mine.seconds, mine.reading, mine.transforming, seconds))
    return _describe(ranks, threads) if any(reading for _, reading, _, _ in ranks) else ""


def _describe(ranks: Sequence[tuple[float, float, float, float]], threads: int) -> str:
    waited, reading, transforming, total = (sum(values) for values in zip(*ranks, strict=True))
    shares = [waits / max(seconds, 1e-9) for waits, _, _, seconds in ranks]
    worst = max(range(len(shares)), key=lambda rank: shares[rank])
    text = f"{waited / max(total, 1e-9):.2%} of the time spent waiting for records"
    if len(ranks) > 1:
        text += f" (worst, rank {worst}: {shares[worst]:.2%})"
    return f"{text}; {remedy(reading, transforming, threads)}" if shares[worst] >= WORTH else text


def remedy(reading: float, transforming: float, threads: int = 0) -> str:
    """Return what helps where records are waited for, by the seconds that reading and transforming them takes."""
    if transforming > reading:
        what = "transforming them takes longest: give each rank another core, or store images at the net's size"
    else:
        what = "reading and decoding take longest: store images resized and undecoded, or on a faster disk"
    more = f"; or more than {threads} reader thread(s), --reader-threads, on cores of their own" if threads else ""
    return f"{what} (scaffe convert-imageset){more}"
