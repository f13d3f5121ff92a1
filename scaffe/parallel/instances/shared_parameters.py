"""Parameters of the instances' nets: one copy in each NUMA domain (ParaX, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.net.net import Net
from scaffe.parallel.instances.places import Place


def share(places: Sequence[Place], nets: Sequence[Net]) -> list[Net]:
    """Make the nets of each domain's instances share their parameters: those of the domain's first net.

    `places` and `nets` are by instance. Return the first net of each domain, instance 0's first.
    """
    firsts: dict[int, Net] = {}
    for place, net in zip(places, nets, strict=True):
        first = firsts.setdefault(place.domain, net)
        if first is not net:
            net.share_with(first)
    return list(firsts.values())
