"""Record: what a rank is doing, published where others can read it even when the rank itself is stopped."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

FIELDS = ("iteration", "net", "operation", "layer", "wait", "since", "beat")
ITERATION, NET, OPERATION, LAYER, WAIT, SINCE, BEAT = range(len(FIELDS))
NBYTES = 8 * len(FIELDS)  # int64; times are the node's monotonic clock in ns, 0: never

OPERATIONS = ("set-up", "forward pass", "backward pass", "agreement on the loss", "update", "test", "snapshot")
SET_UP, FORWARD, BACKWARD, LOSS, UPDATE, TEST, SNAPSHOT = range(len(OPERATIONS))
WAITS = ("", "waiting for the other ranks", "waiting for the root's parameters", "waiting for the sums of gradients")
_, RANKS, PARAMETERS, SUMS = range(len(WAITS))


class Record:
    """This rank's record: plain stores into a few int64, by the one thread that does the rank's work.

    `net` is 0 for the train net and k for test net k - 1, `layer` -1 where no layer is at work.
    """

    def __init__(self) -> None:
        self.row = memoryview(bytearray(NBYTES)).cast("q")
        self.row[LAYER] = -1
        self._waiting = tuple(_Waiting(self, wait) for wait in range(len(WAITS)))

    def move(self, row: memoryview) -> None:
        """Write to another place from now on, such as memory that others see."""
        row[:] = self.row
        self.row = row

    def at(self, operation: int, layer: int = -1) -> None:
        """Say what this rank begins to do."""
        row = self.row
        row[OPERATION] = operation
        row[LAYER] = layer
        row[SINCE] = time.monotonic_ns()

    def begin(self, iteration: int, net: int = 0) -> None:
        """Say in which iteration and net the next steps are."""
        self.row[ITERATION], self.row[NET] = iteration, net

    def waiting(self, wait: int) -> _Waiting:
        """Return a block in which this rank waits for others, or they for it."""
        return self._waiting[wait]


class _Waiting:
    def __init__(self, record: Record, wait: int):
        self.record, self.wait = record, wait

    def __enter__(self) -> None:
        row = self.record.row
        row[WAIT], row[SINCE] = self.wait, time.monotonic_ns()

    def __exit__(self, *error: object) -> None:
        row = self.record.row
        row[WAIT], row[SINCE] = 0, time.monotonic_ns()


@dataclass(frozen=True)
class Seen:
    """What a rank was seen doing: it last moved `idle` seconds ago, and its watchdog last ran `silent` seconds ago."""

    rank: int
    host: str
    row: Sequence[int]
    now: int

    @property
    def is_known(self) -> bool:
        return self.row[BEAT] > 0

    @property
    def is_waiting(self) -> bool:
        return self.row[WAIT] > 0

    @property
    def idle(self) -> float:
        return (self.now - self.row[SINCE]) / 1e9

    @property
    def silent(self) -> float:
        return (self.now - self.row[BEAT]) / 1e9
