"""Residuals: what rounding gradients in messages has lost, and is still to be added to their sums (error feedback).

Each rank keeps what its own messages have lost, and adds it the next time. Of all that the sums alone see the sum over
the ranks. So before a snapshot it is summed on the root, which adds it to its next gradients: in the run that goes on,
and in one that continues from the snapshot, whatever its ranks and messages. Both compute the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np

from collectives.communicator import Communicator
from scaffe.blobs.packed import PackedParameters


class Loses(Protocol):
    """A sum of gradients."""

    def give_lost(self, flat: np.ndarray) -> None:
        """Add what this rank's messages have lost to a flat array, as long as the gradients, and keep it no longer."""


class Residuals:
    """The sum of all residuals of earlier messages, to be added on the root: `kept`, None for nothing.

    `keeps` says whether messages have feedback; `sums()` returns the aggregations whose messages have.
    """

    def __init__(
        self, packed: PackedParameters, comm: Communicator | None, keeps: bool, sums: Callable[[], Iterable[Loses]]
    ):
        self._packed, self._comm, self._keeps, self._sums = packed, comm, keeps, sums
        self.kept: np.ndarray | None = None

    def add(self, part: slice) -> None:
        """Add them to a part of this rank's gradients, complete and not yet summed. Any thread may call it."""
        if self.kept is not None:
            gradients = self._packed.diff_of(part)
            gradients += self._packed.xp.asarray(self.kept[part])

    def add_all(self) -> None:
        """Add them to all gradients of this rank, of which some may be deferred."""
        if self.kept is not None:
            gradients = self._packed.diff
            gradients += self._packed.xp.asarray(self.kept)

    def added(self) -> None:
        """Forget them: all gradients of the iteration are summed."""
        self.kept = None

    def collect(self) -> None:
        """Sum all ranks' residuals on the root, which keeps them. Collective."""
        if not self._keeps or self._comm is None:
            return
        lost = self._take()
        if self.kept is not None:
            lost += self.kept
        self._comm.reduce(lost)
        self.kept = lost if self._comm.rank == 0 else None

    def replace(self, kept: np.ndarray | None) -> None:
        """Forget those of this rank, and keep others: of a snapshot, on the root."""
        self._take()
        self.kept = kept

    def _take(self) -> np.ndarray:
        """Return what this rank's messages have lost since the last call."""
        lost = np.zeros(self._packed.nbytes // 4, np.float32)
        for one in self._sums():
            one.give_lost(lost)
        return lost


class NoResiduals(Residuals):
    """For an aggregation that nobody has given any."""

    def __init__(self) -> None:
        """Keep nothing."""
        self.kept = None
