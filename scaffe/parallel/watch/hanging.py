"""Hanging: with --stall shrink, ranks that hang are ended, and the others go on without them.

All watchdogs decide by one rule, from the same records (see `hanging`). A rank that hangs in a layer ends itself. A
process that does not run is killed by the lowest rank of its host whose process runs. So each rank that is given up is
a process that has ended. MPI reports it to all ranks as any lost one, and they need no other agreement. If no rank of
a host runs, only MPI's own detector of failures can report them.

A process that was stopped, and that nobody could kill, ends itself as soon as it runs again.

A rank that is given up ends by SIGKILL: Open MPI's mpirun ends the job if a process has an exit code other than 0.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from scaffe.monitor.record import Observation
from scaffe.parallel.watch.policy import Policy, end_itself
from scaffe.parallel.watch.report import LayerNames

RAN = 3  # quarters of the stall time in which another rank's watchdog ran, that show that it ran for half of that time


class Standing:
    """How long a rank has stood still: in the same record (`idle`), and without running at all (`silent`), in seconds.

    Only time counts in which this watchdog was running. If it was stopped itself, or got no processor, its own pause is
    not the rank's. The times are the record's own: a datagram dates them anew, so they are no mark of a Standstill.
    """

    def __init__(self) -> None:
        self.idle = self.silent = 0.0

    def watch(self, one: Observation, seconds: float) -> None:
        """Count `seconds`, watched since the last observation, unless the rank has moved."""
        self.idle = min(self.idle + seconds, one.idle)
        self.silent = min(self.silent + seconds, one.silent)


def hanging(
    ranks: Sequence[tuple[Observation, Standing]], is_computing: Callable[[Sequence[int]], bool], seconds: float
) -> tuple[list[Observation], list[Observation]]:
    """Return the ranks that hang: those whose processes do not run, and those that compute one layer for too long.

    `is_computing(row)` returns whether a rank is in a layer's pass and waits for nothing.

    A rank hangs if another one, which runs, has waited for `seconds`, and meanwhile

    - its process has not run,
    - or it has been in one layer's pass: for twice as long if other processes do not run, for which it may wait.

    A rank that reads records, writes a snapshot or runs a callback, and whose process runs, does not hang: it is slow.
    """
    known = [(one, still) for one, still in ranks if one.is_known]
    if not any(one.is_waiting and still.idle >= seconds > 2 * still.silent for one, still in known):
        return [], []
    stopped = [one for one, still in known if still.silent >= seconds]
    patience = 2 * seconds if stopped else seconds
    computing = [one for one, still in known if one not in stopped and still.idle >= patience and is_computing(one.row)]
    return stopped, computing


@dataclass
class OwnPause:
    """A pause of this watchdog: its seconds, and what others `ran` meanwhile, as far as is known `until` the next look.

    By then the ranks of its node that receive datagrams have taken in those that came meanwhile.
    """

    seconds: float
    until: float
    ran: Counter[int] = field(default_factory=Counter)


class Hanging:
    """Ends ranks that hang; `look` is called by the watch of each rank, about every `nap` seconds.

    `local` holds the ranks of this host. Collective.
    """

    def __init__(self, policy: Policy, local: Collection[int], seconds: float, nap: float, layers: LayerNames):
        world, self.local, self.seconds, self.nap = policy.world, local, seconds, nap
        self.rank, self._policy, self._layers = world.rank, policy, layers
        self._processes = [(first, world.launched[first]) for first in world.firsts]
        self._standing = [Standing() for _ in range(world.size)]
        self._given_up: set[int] = set()
        self._last = time.monotonic()  # when this watchdog looked
        self._pause: OwnPause | None = None  # of its own, after which it may find that others ran

    def look(self, seen: Sequence[Observation], ran: Mapping[int, int]) -> None:
        """End ranks that hang, `seen` being all ranks, `ran` the quarters in which each other one ran meanwhile."""
        now, last = time.monotonic(), self._last
        if now - last >= self.seconds:
            self._pause = OwnPause(now - last, now + 1.5 * self.nap)
        self._last = now
        if self._pause is not None and now <= self._pause.until:
            self._check_itself(ran, self._pause)
        ranks = list(zip(seen, self._standing, strict=True))
        for one, still in ranks:
            still.watch(one, min(now - last, 2 * self.nap))
        stopped, computing = hanging(ranks, self._layers.is_computing, self.seconds)
        for one in computing:
            if one.rank == self.rank:
                where = self._layers.places(one)
                end_itself(f"rank {self.rank} is given up: it hangs in {where}, since {one.idle:.0f} s")
        for one in stopped:
            if one.rank in self.local and one.rank not in self._given_up and self._is_lowest():
                self._kill(one)

    def _check_itself(self, ran: Mapping[int, int], pause: OwnPause) -> None:
        """End this process if another one ran while it did not: that one may have given it up.

        Where all were stopped, as a batch system may do, they go on together. Pauses of the other one don't count: it
        gives up by the time in which it runs.
        """
        pause.ran.update(ran)
        if any(count >= RAN for count in pause.ran.values()):
            line = f"its process did not run for {pause.seconds:.0f} s while other ranks did"
            end_itself(f"rank {self.rank} is given up: {line}")

    def _is_lowest(self) -> bool:
        """Return whether this rank is the lowest of its host whose process runs."""
        return self.rank == min(rank for rank in self.local if self._standing[rank].silent <= self.seconds / 2)

    def _kill(self, one: Observation) -> None:
        """Kill a process of this machine that does not run."""
        self._given_up.add(one.rank)
        self._policy.is_stopped(*self._processes[one.rank], one.silent)
