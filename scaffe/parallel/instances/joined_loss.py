"""JoinedLoss: the loss of all instances of a rank."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from scaffe.engine import Loss


class JoinedLoss(Loss):
    """The sum of the instances' parts of an iteration's loss, in the order of the instances."""

    def __init__(self, parts: Sequence[Loss]):
        super().__init__(parts[0].net)
        self._parts = tuple(parts)

    def send(self) -> None:
        """Send each part."""
        for part in self._parts:
            part.send()

    def value(self) -> float:
        """Return the sum. Raise LabelError where a pass met a label that is no class."""
        return sum(part.value() for part in self._parts)

    def suspects(self) -> list[str]:
        """Return the layers whose part of the loss is not finite in any instance."""
        found = [part.suspects() for part in self._parts if not isfinite(part.value())]
        return list(dict.fromkeys(name for names in found for name in names)) or self._parts[0].suspects()


def joined(parts: Sequence[Loss]) -> Loss:
    """Return the loss of all parts; that of a single one is the part itself."""
    return JoinedLoss(parts) if len(parts) > 1 else parts[0]
