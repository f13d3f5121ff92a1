"""Reference: the engine that computes every layer by its reference form, in numpy. Read this one first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scaffe.blobs.packed import aligned_zeros
from scaffe.engine import REFERENCE, Engine, Group, NetView


class Reference(Engine):
    """Compute one layer after the other, each by one call, on the host."""

    name = REFERENCE

    def allocate(self, count: int) -> Any:
        return aligned_zeros(count)

    def groups(self, net: NetView, starts: Iterable[int] = ()) -> list[Group]:
        return [(i,) for i in range(len(net.layers))]

    def forward(self, net: NetView, group: Group) -> None:
        for i in group:
            net.forward_layer(i)

    def backward(self, net: NetView, group: Group) -> None:
        for i in reversed(group):
            net.backward_layer(i)

    def __str__(self) -> str:
        return "reference, in numpy"
