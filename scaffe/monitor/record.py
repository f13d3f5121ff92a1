"""RankRecord: what a rank is doing, published so that others can read it even if the rank is stopped."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

FIELDS = ("iteration", "net", "operation", "layer", "wait", "since", "beat")
ITERATION, NET, OPERATION, LAYER, WAIT, SINCE, BEAT = range(len(FIELDS))
# A published row has a few int64 for the main thread, and for each of several instances. A processor reads and writes
# each of them whole. All that says what a thread does is in one of them, so that a reader never sees a net with another
# net's layer. Times are in ns of the node's monotonic clock, 0 for never. The beat is that of the main thread.
WORDS = ("what", "since", "beat")
WHAT_WORD, SINCE_WORD, BEAT_WORD = range(len(WORDS))
NBYTES = 8 * len(WORDS)
BITS = NET_BITS, OPERATION_BITS, LAYER_BITS, WAIT_BITS = 10, 3, 16, 3  # of "what", below 31 bits of the iteration

OPERATIONS = (
    "set-up",
    "forward pass",
    "backward pass",
    "agreement on the loss",
    "update",
    "test",
    "snapshot",
    "recovery",
)
SET_UP, FORWARD, BACKWARD, LOSS, UPDATE, TEST, SNAPSHOT, RECOVERY = range(len(OPERATIONS))
WAITS = (
    "",
    "waiting for the other ranks",
    "waiting for the root's parameters",
    "waiting for the sums of gradients",
    "waiting for the other instances",
    "at the end of its program",
)
_, RANKS, PARAMETERS, SUMS, INSTANCES, END = range(len(WAITS))


def packed(iteration: int, net: int, operation: int, layer: int, wait: int) -> int:
    """Return the fields as one int64."""
    word = (iteration & 0x7FFFFFFF) << NET_BITS | net
    return word << OPERATION_BITS + LAYER_BITS + WAIT_BITS | _now(operation, layer, wait)


def _now(operation: int, layer: int, wait: int) -> int:
    """Return the fields that change within an iteration of a net, in their places."""
    return (operation << LAYER_BITS | layer + 1) << WAIT_BITS | wait


def unpacked(words: Sequence[int]) -> tuple[int, ...]:
    """Return the FIELDS of a published row.

    "what" is read before "since", and written after it: new work is never paired with an old time.
    """
    word, since, beat = words[WHAT_WORD], words[SINCE_WORD], words[BEAT_WORD]
    values = []
    for bits in reversed(BITS):
        values.append(word & (1 << bits) - 1)
        word >>= bits
    wait, layer, operation, net = values
    return word, net, operation, layer - 1, wait, since, beat


def threads(words: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the FIELDS of each thread in a published row."""
    return [unpacked(words[k : k + len(WORDS)]) for k in range(0, len(words), len(WORDS))]


class RankRecord:
    """What this rank, or one of its several instances, is doing, written by the one thread that does its work.

    `row` is where it is written: WORDS, int64. The net is 0 for the train net and k for test net k - 1; the layer is
    -1 if no layer is computed.
    """

    def __init__(self) -> None:
        self.row = memoryview(bytearray(NBYTES)).cast("q")
        self._iteration, self._net, self._operation, self._layer = 0, 0, SET_UP, -1
        self._begun = 0  # the word of the iteration and the net alone
        self._waiting = tuple(_Waiting(self, wait) for wait in range(len(WAITS)))
        self._wait = 0
        self._store(0)

    def move(self, row: memoryview) -> None:
        """Write to `row` from now on, for example in memory that other ranks map. The row before shows no wait."""
        row[:] = self.row
        self.row, before = row, self.row
        before[WHAT_WORD] = packed(self._iteration, self._net, self._operation, -1, 0)

    def at(self, operation: int, layer: int = -1) -> None:
        """Record the operation, one of OPERATIONS by index, and the layer that begins now."""
        self._operation, self._layer = operation, layer
        self._store(0)

    def begin(self, iteration: int, net: int = 0) -> None:
        """Record the iteration and the net of the next operations; no layer is computed yet."""
        self._iteration, self._net, self._layer = iteration, net, -1
        self._begun = packed(iteration, net, 0, -1, 0)
        self._store(0)

    def rest(self) -> None:
        """Record that an instance of this rank has no work until the others have ended theirs too."""
        self._layer = -1
        self._store(INSTANCES)

    def end(self) -> None:
        """Record that the program of this rank has ended, maybe amid its work: it comes back to none.

        From then on it has ended, also while it waits for the others to end what is theirs together.
        """
        self._store(END)

    def waiting(self, wait: int) -> _Waiting:
        """Return a context manager in which this rank waits, `wait` being one of WAITS by index; waits may nest."""
        return self._waiting[wait]

    def _store(self, wait: int) -> None:
        self._wait = wait = END if self._wait == END else wait
        row = self.row
        row[SINCE_WORD] = time.monotonic_ns()
        row[WHAT_WORD] = self._begun | _now(self._operation, self._layer, wait)


class _Waiting:
    def __init__(self, record: RankRecord, wait: int):
        self._record, self._wait = record, wait
        self._outer: list[int] = []

    def __enter__(self) -> None:
        self._outer.append(self._record._wait)
        self._record._store(self._wait)

    def __exit__(self, *error: object) -> None:
        self._record._store(self._outer.pop())


@dataclass(frozen=True)
class Observation:
    """A rank's record as read at time `now`, in ns.

    `row` holds the FIELDS of its main thread, and `instances` those of its instances where it has several.
    """

    rank: int
    host: str
    row: Sequence[int]
    now: int
    instances: Sequence[Sequence[int]] = ()

    @property
    def rows(self) -> Sequence[Sequence[int]]:
        """The FIELDS of all threads."""
        return [self.row, *self.instances]

    @property
    def is_known(self) -> bool:
        """Whether any record of this rank has arrived."""
        return self.row[BEAT] > 0

    @property
    def has_ended(self) -> bool:
        """Whether the rank's program has ended; its process may be left, in MPI_Finalize."""
        return self.row[WAIT] == END

    @property
    def is_waiting(self) -> bool:
        """Whether the rank waits for other ranks: each of its threads does, or waits for one that does."""
        return not self.has_ended and all(row[WAIT] > 0 for row in self.rows)

    @property
    def idle(self) -> float:
        """Seconds since any thread of the rank last changed its record."""
        return (self.now - max(row[SINCE] for row in self.rows)) / 1e9

    @property
    def silent(self) -> float:
        """Seconds since the rank's watchdog thread last ran."""
        return (self.now - self.row[BEAT]) / 1e9
