"""Buckets: what travels in one message: a run of parameters, or a piece of a layer, a slice of the packed arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt

from scaffe.net import Net
from scaffe.packed import PackedParameters

LINE = 16  # elements: pieces begin where parameters may, on a boundary of 64 bytes
FIRST = 8
SMALLEST = 1 << 16  # bytes: no layer is cut into less, a message more would take longer than it saves


@dataclass(frozen=True)
class Bucket:
    """Where it stands in the packed arrays, the numbers of the parameters there, and the layers that use any of them.

    `piece` says which piece of a layer it is, "" if it is no piece.
    """

    part: slice
    parameters: tuple[int, ...]
    layers: tuple[int, ...]
    piece: str = ""

    def label(self, net: Net) -> str:
        """Return its layers' names, as messages call it: conv1, conv1 to conv5, fc6 3/37."""
        return self._called([net.layers[i].name for i in self.layers])

    def owners(self, packed: PackedParameters) -> str:
        """Return the names of the layers that its parameters are of."""
        return self._called([packed.parameters[i].layer for i in self.parameters])

    def _called(self, names: list[str]) -> str:
        label = names[0] if names[0] == names[-1] else f"{names[0]} to {names[-1]}"
        return f"{label} {self.piece}" if self.piece else label


def make_buckets(net: Net, nbytes: float, cut: bool = True) -> list[Bucket]:
    """Return the net's learned parameters in buckets of at most `nbytes`, in the layers' order.

    Layers that have room in one are joined. The first bucket's sum comes last and is needed first, so that nothing of
    it is hidden: it has 1 / FIRST of that room, and each bucket twice the one's before. Larger layers are cut, down to
    SMALLEST and if `cut` says so, since of a layer in one message nothing could be updated and sent on while the rest
    arrives. 0 gives each layer its own, and infinity one to all.
    """
    users = _users(net)
    runs: list[list[int]] = []
    room = nbytes / FIRST
    for group in _by_layer(net):
        if runs and nbytes > 0 and _nbytes(net, runs[-1] + group) <= room:
            runs[-1] += group
        else:
            room = min(nbytes, 2 * room) if runs else room
            runs.append(group)
    buckets = [_bucket(net, run, users) for run in runs]
    most = max(SMALLEST, nbytes) / net.packed.data.itemsize if cut and nbytes else inf
    return [piece for bucket in buckets for piece in _pieces(net, bucket, most)]


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


def _pieces(net: Net, bucket: Bucket, most: float) -> list[Bucket]:
    """Return the bucket in pieces of at most so many elements."""
    start, stop = bucket.part.start, bucket.part.stop
    if stop - start <= most:
        return [bucket]
    cuts = [*range(start, stop, int(most) // LINE * LINE), stop]
    parts = [slice(a, b) for a, b in zip(cuts, cuts[1:], strict=False)]
    return [
        replace(bucket, part=part, parameters=_within(net, bucket.parameters, part), piece=f"{k}/{len(parts)}")
        for k, part in enumerate(parts, 1)
    ]


def _within(net: Net, parameters: Sequence[int], part: slice) -> tuple[int, ...]:
    """Return those of the parameters that have elements in that part."""
    slices = net.packed.slices
    return tuple(i for i in parameters if slices[i].start < part.stop and part.start < slices[i].stop)


def suited_bytes(total: int, alpha: float, beta: float) -> int:
    """Return the bytes of a bucket that keep least exposed of `total` bytes, a message's n taking alpha + beta n s.

    Each of total / n buckets starts once, and of the last nothing is hidden: total / n alpha + n beta is least.
    """
    return max(1, round(min(total, sqrt(total * alpha / beta))))
