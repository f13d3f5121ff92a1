"""Buckets: runs of parameters that travel in one message, always a slice of the packed arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt

from scaffe.net import Net


@dataclass(frozen=True)
class Bucket:
    """Where a run of parameters stands in the packed arrays, their numbers, and the layers that use any of them."""

    part: slice
    parameters: tuple[int, ...]
    layers: tuple[int, ...]

    def label(self, net: Net) -> str:
        """Return its layers' names, as messages call it: conv1, or conv1 to conv5."""
        names = [net.layers[i].name for i in self.layers]
        return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def make_buckets(net: Net, nbytes: float) -> list[Bucket]:
    """Return the net's learned parameters in buckets of at most `nbytes`, or of one layer, in the layers' order.

    0 gives each layer its own, infinity one to all.
    """
    users = _users(net)
    runs: list[list[int]] = []
    for group in _by_layer(net):
        if runs and nbytes > 0 and _nbytes(net, runs[-1] + group) <= nbytes:
            runs[-1] += group
        else:
            runs.append(group)
    return [_bucket(net, run, users) for run in runs]


def _by_layer(net: Net) -> list[list[int]]:
    """Return the numbers of the learned parameters, those of one layer together, in the order of the layers."""
    groups: dict[str, list[int]] = {}
    for i, parameter in enumerate(net.packed.parameters):
        if not parameter.statistic:
            groups.setdefault(parameter.layer, []).append(i)
    return list(groups.values())


def _users(net: Net) -> list[list[int]]:
    """Return for each parameter the layers that have it, in their order."""
    owners = {
        id(blob): i
        for i, parameter in enumerate(net.packed.parameters)
        for blob in (parameter.blob, *parameter.sharers)
    }
    users: list[list[int]] = [[] for _ in net.packed.parameters]
    for number, layer in enumerate(net.layers):
        for blob in layer.blobs:
            users[owners[id(blob)]].append(number)
    return users


def _part(net: Net, run: Sequence[int]) -> slice:
    slices = net.packed.slices
    return slice(slices[run[0]].start, slices[run[-1]].stop)


def _nbytes(net: Net, run: Sequence[int]) -> int:
    part = _part(net, run)
    return (part.stop - part.start) * net.packed.data.itemsize


def _bucket(net: Net, run: Sequence[int], users: Sequence[Sequence[int]]) -> Bucket:
    layers = sorted({layer for i in run for layer in users[i]})
    return Bucket(_part(net, run), tuple(run), tuple(layers))


def suited_bytes(total: int, alpha: float, beta: float) -> int:
    """Return the bytes of a bucket that keep least exposed of `total` bytes, a message's n taking alpha + beta n s.

    Each of total / n buckets starts once, and of the last nothing is hidden: total / n alpha + n beta is least.
    """
    return max(1, round(min(total, sqrt(total * alpha / beta))))


def parse_bytes(text: str) -> float:
    """Return the bytes that `--bucket-bytes` names: 0, 65536, 64K, 4M, inf. Raise ValueError for anything else."""
    if text == "inf":
        return inf
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    unit = units.get(text[-1:].upper(), 1)
    number = int(text[:-1] if unit > 1 else text) * unit
    if number < 0:
        raise ValueError(text)
    return number
