"""Record: what a rank is doing, published where others can read it even when the rank itself is stopped."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

FIELDS = ("iteration", "net", "operation", "layer", "wait", "since", "beat")
ITERATION, NET, OPERATION, LAYER, WAIT, SINCE, BEAT = range(len(FIELDS))
# A row as it is published: int64, of which a processor reads and writes each whole. What a rank does is one of them, so
# that no reader finds a net with another net's layer. Times are the node's monotonic clock in ns, 0: never.
WORDS = ("what", "since", "beat")
WHAT_WORD, SINCE_WORD, BEAT_WORD = range(len(WORDS))
NBYTES = 8 * len(WORDS)
BITS = NET_BITS, OPERATION_BITS, LAYER_BITS, WAIT_BITS = 10, 3, 16, 3  # of "what", behind 31 of the iteration

OPERATIONS = ("set-up", "forward pass", "backward pass", "agreement on the loss", "update", "test", "snapshot")
SET_UP, FORWARD, BACKWARD, LOSS, UPDATE, TEST, SNAPSHOT = range(len(OPERATIONS))
WAITS = ("", "waiting for the other ranks", "waiting for the root's parameters", "waiting for the sums of gradients")
_, RANKS, PARAMETERS, SUMS = range(len(WAITS))


def packed(iteration: int, net: int, operation: int, layer: int, wait: int) -> int:
    """Return the fields as one int64."""
    word = (iteration & 0x7FFFFFFF) << NET_BITS | net
    return ((word << OPERATION_BITS | operation) << LAYER_BITS | layer + 1) << WAIT_BITS | wait


def unpacked(words: Sequence[int]) -> tuple[int, ...]:
    """Return a published row's FIELDS, those of one moment."""
    word, since, beat = words[WHAT_WORD], words[SINCE_WORD], words[BEAT_WORD]  # new deeds never with an old time
    values = []
    for bits in reversed(BITS):
        values.append(word & (1 << bits) - 1)
        word >>= bits
    wait, layer, operation, net = values
    return word, net, operation, layer - 1, wait, since, beat


class Record:
    """This rank's record: plain stores into a few int64, by the one thread that does the rank's work.

    `net` is 0 for the train net and k for test net k - 1, `layer` -1 where no layer is at work.
    """

    def __init__(self) -> None:
        self.row = memoryview(bytearray(NBYTES)).cast("q")
        self._iteration, self._net, self._operation, self._layer = 0, 0, SET_UP, -1
        self._waiting = tuple(_Waiting(self, wait) for wait in range(len(WAITS)))
        self._tell(0)

    def move(self, row: memoryview) -> None:
        """Write to another place from now on, such as memory that others see."""
        row[:] = self.row
        self.row = row

    def at(self, operation: int, layer: int = -1) -> None:
        """Say what this rank begins to do."""
        self._operation, self._layer = operation, layer
        self._tell(0)

    def begin(self, iteration: int, net: int = 0) -> None:
        """Say in which iteration and net the next steps are; no layer of it is at work yet."""
        self._iteration, self._net, self._layer = iteration, net, -1
        self._tell(0)

    def waiting(self, wait: int) -> _Waiting:
        """Return a block in which this rank waits for others, or they for it."""
        return self._waiting[wait]

    def _tell(self, wait: int) -> None:
        row = self.row
        row[SINCE_WORD] = time.monotonic_ns()
        row[WHAT_WORD] = packed(self._iteration, self._net, self._operation, self._layer, wait)


class _Waiting:
    def __init__(self, record: Record, wait: int):
        self._tell, self._wait = record._tell, wait

    def __enter__(self) -> None:
        self._tell(self._wait)

    def __exit__(self, *error: object) -> None:
        self._tell(0)


@dataclass(frozen=True)
class Seen:
    """What a rank was seen doing: it last moved `idle` seconds ago, and its watchdog last ran `silent` seconds ago."""

    rank: int
    host: str
    row: Sequence[int]  # FIELDS
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
