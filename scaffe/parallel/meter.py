"""Meter: what one kind of messages costs this rank, and how much of that computation hides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from collectives import Staged
from scaffe.parallel.world import World

# In place of a bucket's number:
ALL = -1  # a message of all of them
HANDLING = -2  # messages of any, between layers


class Meter:
    """Count the seconds of one kind of messages ("propagation", "aggregation").

    `exposed` are those in which computation waited for such messages, or its thread handled them, `busy` those in
    which any were under way.
    `note(kind, bucket, begin, end, lane)`, where given, is told each wait, with lane None, and each message.
    """

    def __init__(self, kind: str):
        self.kind = kind
        self.exposed = 0.0
        self.note: Callable[[str, int, float, float, int | None], object] | None = None
        self._blocked = 0.0
        self._worked = 0.0
        self._staged: Staged | None = None

    @property
    def busy(self) -> float:
        """Seconds in which any message was under way here."""
        return self._blocked + (self._staged.busy if self._staged else 0.0)

    def wait(self, bucket: int, work: Callable[[], object]) -> None:
        """Do the work, which is to wait for a bucket's message; what was computed meanwhile is no waiting."""
        worked, begin = self._worked, perf_counter()
        work()
        self._waited(bucket, begin, worked)

    def handle(self, progress: Callable[[], bool]) -> None:
        """Let messages go on between layers; if anything moved, computation waited meanwhile."""
        worked, begin = self._worked, perf_counter()
        if progress():
            self._waited(HANDLING, begin, worked)

    def _waited(self, bucket: int, begin: float, worked: float) -> None:
        end = perf_counter()
        self.exposed += end - begin - (self._worked - worked)
        if self.note:
            self.note(self.kind, bucket, begin, end, None)

    def block(self, work: Callable[[], object]) -> None:
        """Do the work, which is to send and receive all buckets at once while nothing computes."""
        begin = perf_counter()
        work()
        end = perf_counter()
        self.exposed += end - begin
        self._blocked += end - begin
        if self.note:
            self.note(self.kind, ALL, begin, end, None)
            self.note(self.kind, ALL, begin, end, 0)

    def compute(self, bucket: int, work: Callable[[], object]) -> None:
        """Do the work, which is to update a bucket's parameters, maybe within a wait."""
        begin = perf_counter()
        work()
        end = perf_counter()
        self._worked += end - begin
        if self.note:
            self.note("update", bucket, begin, end, None)

    def follow(self, staged: Staged, buckets: list[int]) -> None:
        """Count these messages too; `buckets` are their numbers by stage."""

        def note(stage: int, begin: float, end: float) -> None:
            if self.note:
                self.note(self.kind, buckets[stage], begin, end, stage % staged.lanes)

        self._blocked = self.busy
        self._staged, staged.on_end = staged, note


def hidden_share(exposed: float, busy: float) -> float:
    """Return which part of the `busy` seconds of messages was not waited for: 0 to 1, 0 where there were none."""
    return max(0.0, 1 - exposed / busy) if busy > 0 else 0.0


def describe(world: World, meters: Sequence[Meter], iterations: int) -> str:
    """Return how much of each kind of messages was hidden, over all ranks and on the worst; collective."""
    # Waiting beyond busy times was for something else too: the other kind's messages are handled in the same loop.
    seconds = world.comm.allgather([(min(meter.exposed, meter.busy), meter.busy) for meter in meters])
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
