"""Board: what each rank of a node has entered, in memory that the others read while it is inside MPI."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collectives.execution.window import SharedWindow
from collectives.loss import has_lost_any

if TYPE_CHECKING:
    from mpi4py import MPI

Row = memoryview | list[int]
BEGUN, ASKING, ENTERED, JOINED, TOLD, CHANGES, KEPT_AT = range(7)  # places in a row
KEPT = 64  # changes
LENGTH = KEPT_AT + 2 * KEPT
UNKNOWN, NOTHING = -1, 0  # what a rank runs in a call


class Board:
    """A row of whole numbers for each rank of `comm`, whose ranks share memory. A rank writes in its own, but for TOLD.

    - BEGUN: the last call that it has begun to run, of those that were agreed on before.
    - ASKING: the last call on which it wanted to agree.
    - CHANGES: how often it has turned to another run; the last KEPT of them, each a call and what it runs from then on.
    - TOLD, JOINED, ENTERED: see `collectives.mistakes`.

    Making it is collective, and so is `free`.
    """

    def __init__(self, comm: MPI.Intracomm):
        self._window = SharedWindow(comm, LENGTH * np.dtype(np.int64).itemsize)
        self.rows: list[Row] = [part.view(np.int64).data for part in self._window.segments]
        self.own = self.rows[comm.rank]

    def change(self, call: int, run: int) -> None:
        """Note that this rank runs `run` from that call on."""
        place = KEPT_AT + 2 * (self.own[CHANGES] % KEPT)
        self.own[place], self.own[place + 1] = call, run
        self.own[CHANGES] += 1
        self._window.sync()

    @property
    def last(self) -> int:
        """Return the last call that any rank has begun."""
        return max(row[BEGUN] for row in self.rows)

    def runs(self, call: int) -> set[int]:
        """Return what the ranks that have begun a call run in it, UNKNOWN where that is too long ago."""
        self._window.sync()
        return {run_of(row, call) for row in self.rows if row[BEGUN] >= call}

    def free(self) -> None:
        """Free the memory, unless a rank is lost; do nothing a second time."""
        from mpi4py import MPI

        rows, self.rows, self.own = self.rows, [], []
        if rows and not (MPI.Is_finalized() or has_lost_any()):
            self._window.free()


def run_of(row: Row, call: int) -> int:
    """Return what the row's rank runs in a call, UNKNOWN where that is too long ago."""
    kept = zip(row[KEPT_AT::2], row[KEPT_AT + 1 :: 2], strict=True)
    return max(((since, run) for since, run in kept if 0 < since <= call), default=(0, UNKNOWN))[1]
