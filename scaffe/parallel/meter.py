"""Meter: the time that one kind of messages takes on this rank, and how much of it computation hides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock, get_ident, local
from time import perf_counter

from collectives.staged import Staged
from scaffe.monitor.spans import UPDATE
from scaffe.parallel.world import World

# In place of a bucket's index:
ALL = -1  # one message of all buckets
HANDLING = -2  # messages of any bucket, handled between layers


def machine_clock() -> float:
    """Return the seconds of the machine's clock."""
    return perf_counter()


class _Worked(local):
    """Seconds that the calling thread has spent on updates."""

    seconds = 0.0


class Meter:
    """Count the seconds of one kind of messages, such as monitor.spans.PROPAGATION or AGGREGATION.

    `exposed` is the time in which computation waited for such messages or its thread handled them; `busy` is the time
    in which at least one was in flight. Where several instances compute, `instances` is their number, and the mean of
    their waits counts; a wait of the thread that made the meter, which calls MPI, holds up all.

    `now` is the clock, in seconds. `note(kind, bucket, begin, end, lane)`, if set, is called for each wait, with lane
    None, and for each message.
    """

    def __init__(self, kind: str, now: Callable[[], float] = machine_clock):
        self.kind, self._now = kind, now
        self.exposed = 0.0
        self.instances = 1
        self.note: Callable[[str, int, float, float, int | None], object] | None = None
        self._blocked = 0.0
        self._worked = _Worked()
        self._staged: Staged | None = None
        self._main, self._lock = get_ident(), Lock()

    @property
    def busy(self) -> float:
        """Seconds in which at least one message was in flight on this rank."""
        return self._blocked + (self._staged.busy if self._staged else 0.0)

    def wait(self, bucket: int, work: Callable[[], object]) -> None:
        """Call `work`, which waits for a bucket's message; time computed within it is not counted as waiting."""
        worked, begin = self._worked.seconds, self._now()
        work()
        self._waited(bucket, begin, worked)

    def handle(self, progress: Callable[[], bool]) -> None:
        """Call `progress` between layers; its time is exposed if it advanced a message."""
        worked, begin = self._worked.seconds, self._now()
        if progress():
            self._waited(HANDLING, begin, worked)

    def _waited(self, bucket: int, begin: float, worked: float) -> None:
        end = self._now()
        held_up = 1 if get_ident() == self._main else self.instances
        with self._lock:
            self.exposed += (end - begin - (self._worked.seconds - worked)) / held_up
        if self.note:
            self.note(self.kind, bucket, begin, end, None)

    def block(self, work: Callable[[], object]) -> None:
        """Call `work`, a blocking collective over all buckets; all its time is exposed."""
        begin = self._now()
        work()
        end = self._now()
        self.exposed += end - begin
        self._blocked += end - begin
        if self.note:
            self.note(self.kind, ALL, begin, end, None)
            self.note(self.kind, ALL, begin, end, 0)

    def compute(self, bucket: int, work: Callable[[], object]) -> None:
        """Call `work`, which updates a bucket's parameters; a wait that contains it does not count its time."""
        begin = self._now()
        work()
        end = self._now()
        self._worked.seconds += end - begin
        if self.note:
            self.note(UPDATE, bucket, begin, end, None)

    def follow(self, staged: Staged, buckets: list[int]) -> None:
        """Count these messages too; `buckets` holds the bucket of each stage."""

        def note(stage: int, begin: float, end: float) -> None:
            if self.note:
                self.note(self.kind, buckets[stage], begin, end, stage % staged.lanes)

        self._blocked = self.busy
        self._staged, staged.on_end = staged, note


def hidden_share(exposed: float, busy: float) -> float:
    """Return the share of the `busy` seconds that was not waited for: 0 to 1, and 0 if there were no messages."""
    return max(0.0, 1 - exposed / busy) if busy > 0 else 0.0


def describe(world: World, meters: Sequence[Meter], iterations: int) -> str:
    """Return how much of each kind of messages was hidden, as the mean of all ranks and on the worst. Collective."""
    # A wait can exceed the busy time, since it handles the other kind's messages too: count no more than that.
    seconds = world.allgather([(min(meter.exposed, meter.busy), meter.busy) for meter in meters])
    kinds = zip(meters, zip(*seconds, strict=True), strict=True)
    return "; ".join(_describe(meter.kind, ranks, max(1, iterations)) for meter, ranks in kinds)


def _describe(kind: str, ranks: Sequence[tuple[float, float]], iterations: int) -> str:
    exposed, busy = (sum(values) / len(ranks) for values in zip(*ranks, strict=True))
    worst = max(range(len(ranks)), key=lambda rank: ranks[rank][0])
    if not busy:
        return f"{kind}: no messages"
    return (
        f"{kind}: {hidden_share(exposed, busy):.0%} hidden, {1e3 * exposed / iterations:.3g} ms an iteration exposed "
        f"(worst, rank {worst}: {hidden_share(*ranks[worst]):.0%}, {1e3 * ranks[worst][0] / iterations:.3g} ms)"
    )
