"""Bucket: the parameters of one message: those of consecutive layers, or a piece of one layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, log2, sqrt

from scaffe.blobs.packed import PackedParameters
from scaffe.net.net import Net

LINE = 16  # elements: pieces, like parameters, begin on a boundary of 64 bytes
FIRST = 8  # the first bucket has 1 / FIRST of the others' size
CHAIN = 8  # ranks: S-Caffe's best length of a chain (section 5), whose fill hides behind the backward pass
SMALLEST = 1 << 16  # bytes: no layer is cut into smaller pieces, since another message would cost more than it saves


@dataclass(frozen=True)
class Bucket:
    """A slice of the packed arrays that travels in one message.

    `parameters` and `layers` hold the indices of the parameters that have elements in it, and of the layers that use
    any of these. `piece` is "2/5" for the second of a layer's five pieces, else "". `owner` is the rank that gets the
    gradients' sums, updates the parameters and broadcasts them: the root in S-Caffe's form. Where each rank does so for
    a slice of the bucket, `counts` has the elements of each rank's, which lie in the order of the ranks.
    """

    part: slice
    parameters: tuple[int, ...]
    layers: tuple[int, ...]
    piece: str = ""
    owner: int = 0
    counts: tuple[int, ...] = ()

    @property
    def is_shared(self) -> bool:
        """Whether other ranks than the root own elements of it."""
        return self.owner != 0 or bool(self.counts)

    def mine(self, rank: int) -> list[slice]:
        """Return the elements that a rank owns: one slice of the packed arrays, or none."""
        if not self.counts:
            return [self.part] if rank == self.owner else []
        start = self.part.start + sum(self.counts[:rank])
        return [slice(start, start + self.counts[rank])] if self.counts[rank] else []

    def others(self, rank: int) -> list[slice]:
        """Return the elements that other ranks own, in at most two slices."""
        if not (mine := self.mine(rank)):
            return [self.part]
        around = slice(self.part.start, mine[0].start), slice(mine[0].stop, self.part.stop)
        return [one for one in around if one.start < one.stop]

    def share(self, rank: int, packed: PackedParameters) -> Bucket | None:
        """Return what a rank updates of it, None for nothing."""
        for part in self.mine(rank):
            return replace(self, part=part, parameters=within(packed, self.parameters, part), owner=rank, counts=())
        return None

    def label(self, net: Net) -> str:
        """Return its name in messages and timelines, by the layers that use it: conv1, conv1 to conv5, fc6 3/37."""
        return self._called([net.layers[i].name for i in self.layers])

    def owners(self, packed: PackedParameters) -> str:
        """Return its name by the layers that own its parameters."""
        return self._called([packed.parameters[i].layer for i in self.parameters])

    def _called(self, names: list[str]) -> str:
        label = names[0] if names[0] == names[-1] else f"{names[0]} to {names[-1]}"
        return f"{label} {self.piece}" if self.piece else label


def make_buckets(net: Net, nbytes: float, cut: bool = True) -> list[Bucket]:
    """Return the net's learned parameters in buckets of at most `nbytes`, in the order of the layers.

    Consecutive layers that fit into a bucket share it. The first bucket's sum is complete last and needed first, so
    that none of its time is hidden: its limit is nbytes / FIRST, and each following bucket's is twice the one before.
    With `cut`, larger layers are cut into pieces of at least SMALLEST bytes, so that a piece can be updated and
    broadcast while the others still arrive. `nbytes` 0 makes one bucket per layer, infinity one bucket of all.
    """
    users = _users(net)
    joined: list[list[int]] = []
    limit = nbytes / FIRST
    for indices in _by_layer(net):
        if joined and nbytes > 0 and _nbytes(net, joined[-1] + indices) <= limit:
            joined[-1] += indices
        else:
            limit = min(nbytes, 2 * limit) if joined else limit
            joined.append(indices)
    buckets = [_bucket(net, indices, users) for indices in joined]
    most = max(SMALLEST, nbytes) / net.packed.data.itemsize if cut and nbytes else inf
    return [piece for bucket in buckets for piece in _pieces(net, bucket, most)]


def _by_layer(net: Net) -> list[list[int]]:
    """Return the indices of the learned parameters, a list for each layer, in the order of the layers."""
    by_name: dict[str, list[int]] = {}
    for i, parameter in enumerate(net.packed.parameters):
        if not parameter.statistic:
            by_name.setdefault(parameter.layer, []).append(i)
    return list(by_name.values())


def _users(net: Net) -> list[list[int]]:
    """Return for each parameter the indices of the layers that use it, ascending."""
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


def _part(net: Net, indices: Sequence[int]) -> slice:
    slices = net.packed.slices
    return slice(slices[indices[0]].start, slices[indices[-1]].stop)


def _nbytes(net: Net, indices: Sequence[int]) -> int:
    part = _part(net, indices)
    return int((part.stop - part.start) * net.packed.data.itemsize)


def _bucket(net: Net, indices: Sequence[int], users: Sequence[Sequence[int]]) -> Bucket:
    layers = sorted({layer for i in indices for layer in users[i]})
    return Bucket(_part(net, indices), tuple(indices), tuple(layers))


def _pieces(net: Net, bucket: Bucket, most: float) -> list[Bucket]:
    """Return the bucket, cut into pieces of at most `most` elements."""
    start, stop = bucket.part.start, bucket.part.stop
    if stop - start <= most:
        return [bucket]
    cuts = [*range(start, stop, int(most) // LINE * LINE), stop]
    parts = [slice(a, b) for a, b in zip(cuts, cuts[1:], strict=False)]
    return [
        replace(bucket, part=part, parameters=within(net.packed, bucket.parameters, part), piece=f"{k}/{len(parts)}")
        for k, part in enumerate(parts, 1)
    ]


def within(packed: PackedParameters, parameters: Sequence[int], part: slice) -> tuple[int, ...]:
    """Return those of the parameters that have elements in `part`."""
    slices = packed.slices
    return tuple(i for i in parameters if slices[i].start < part.stop and part.start < slices[i].stop)


def suited_bytes(total: int, alpha: float, beta: float, ranks: int) -> int:
    """Return the bytes n of a bucket that minimise the exposed time of `total` bytes, 1 to `total`.

    A message of n bytes takes alpha + beta n seconds. Each of total / n buckets costs alpha for each hop by which the
    pipeline is longer than a chain of CHAIN ranks, and for the first one; the last bucket is not hidden: n minimises
    total / n hops alpha + n beta. Where a pipeline is long, n is a power of two near that, which whole chunks fill.
    """
    hops = max(1, ranks - CHAIN + 1)
    n = max(1.0, sqrt(total * hops * alpha / beta))
    return round(min(total, n if hops == 1 else 2 ** round(log2(n))))
