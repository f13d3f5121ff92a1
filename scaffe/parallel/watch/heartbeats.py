"""Heartbeats: the probe that gets the ranks' records, and finds ranks that wait for long, or that hang.

A waiting rank may be inside MPI, and a missing one may be stopped, so neither can answer. Each rank therefore publishes
its RankRecord in memory that its node's ranks share, and the watch of each rank reads all records.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from collectives import Communicator
from collectives.execution.window import SharedWindow
from collectives.group import Group
from scaffe.errors import AgreedError
from scaffe.monitor.record import (
    BEAT_WORD,
    ITERATION,
    NBYTES,
    RANKS,
    WAIT,
    WHAT_WORD,
    WORDS,
    Observation,
    RankRecord,
    packed,
    threads,
    unpacked,
)
from scaffe.monitor.watching import SAY, SHRINK, Watching
from scaffe.parallel.instances.team import Team
from scaffe.parallel.watch.datagrams import Datagrams
from scaffe.parallel.watch.hanging import Hanging
from scaffe.parallel.watch.policy import Policy
from scaffe.parallel.watch.report import LayerNames, Watched, report
from scaffe.parallel.watch.watch import nap_of
from scaffe.parallel.world import World

if TYPE_CHECKING:
    from mpi4py import MPI


class Heartbeats:
    """A probe that reports when this rank has waited for `seconds`, and again after as long.

    Of the ranks that wait, the lowest reports. `how`, one of STALL, is "abort" if the first report ends the job, and
    "shrink" if ranks that hang are ended (see hanging.py). With any of them the job ends if a rank's program has ended,
    as by sys.exit in a callback, and all others wait for ranks. `nets` are the train net and the test nets, and `node`
    is the communicator of the ranks that share memory with this one. Records of other nodes arrive by datagrams; a rank
    of which none has arrived is reported as unknown. `records` are that of the main thread and those of several
    instances, by default the first alone; `group` has the nodes of all ranks, where it is known. Of several Heartbeats
    in a process one has the records: that of the solver at work. Collective; so is `close`.
    """

    def __init__(
        self,
        world: World,
        node: MPI.Intracomm,
        nets: Sequence[Watched],
        seconds: float,
        how: str = SAY,
        records: Sequence[RankRecord] = (),
        group: Group | None = None,
    ):
        self.world, self.layers, self.seconds, self.policy = world, LayerNames(nets), seconds, Policy(world, how)
        self.rank, self.hosts = world.rank, [host for host, _ in world.places]  # kept while ranks are lost
        self._firsts = world.firsts
        self.nap = nap_of(seconds)
        self.records = records or [world.record]
        group = group or Group.from_node(world.comm, node)
        self.local = group.members(world.rank)
        self._counts = _counts(world, len(self.records))
        self._every, self._counted, self._looks = seconds / 4, 0, 0  # intervals in which this watch has looked
        nbytes = (max(self._counts) + 1) * NBYTES  # the last row: what this watch has done
        # Each rank of a node has in its segment its own row, and a share of the rows of the other nodes.
        foreign = [rank for rank in range(world.size) if group.nodes[rank] != group.nodes[world.rank]]
        self._window = SharedWindow(node, nbytes * (1 + -(-len(foreign) // node.size)))
        segments = [segment.data.cast("q") for segment in self._window.segments]
        self.rows = [memoryview(b"").cast("q")] * world.size
        for k, rank in enumerate([*self.local, *foreign]):
            start = k // node.size * nbytes // 8
            self.rows[rank] = segments[k % node.size][start : start + nbytes // 8]
        self._known = [0] * world.size  # looks of all ranks' watches, as far as they are known
        self._own = [self.rows[self.rank][k * len(WORDS) : (k + 1) * len(WORDS)] for k in range(len(self.records))]
        self.take_records()
        self._beat()  # before the next call of MPI, so that no rank of this host is unknown from then on
        self.datagrams = Datagrams(world.comm, group, self._every, self._fits, max(self._counts) + 1)
        self._reported = 0  # the time of the last report, ns
        self._refused = 0  # already reported: dropped datagrams
        self.hanging: Hanging | None = None
        if how == SHRINK:
            self.hanging = Hanging(self.policy, self.local, seconds, self.nap, self.layers)
        world.watch.add(self)
        atexit.register(self.note_end)  # after the collectives' functions, so that it is called before they wait

    def take_records(self) -> None:
        """Have the records written here: those of another solver of this process may have taken them."""
        for record, row in zip(self.records, self._own, strict=False):  # no rows once it is closed
            if record.row is not row:
                record.move(row)

    def note_end(self) -> None:
        """Note that the program has ended before this watch: the other ranks may wait for this one for ever.

        Tell other nodes at once: Python ends the watch's thread before MPI_Finalize waits for these ranks.
        """
        self.records[0].end()
        self._own[0][:] = self.records[0].row
        self.datagrams.send_last(self.rows, [self.rank])

    def close(self) -> None:
        """Look no more, and free the shared memory. Collective."""
        self.abandon()
        self.rows = []
        self._window.free()

    def covers(self, number: int) -> bool:
        """Return whether the process that was started as rank `number` is one of these ranks."""
        return number in self._firsts

    def last_of(self, first: int) -> str:
        """Return what a rank was last seen doing: "; last seen in backward pass of layer conv1, iteration 7", or "".

        `first` is its number at the job's start: the watch goes on while ranks are renumbered.
        """
        one = self.seen(self._firsts.index(first)) if self.rows and first in self._firsts else None  # none of a spare
        return f"; last seen in {self.layers.places(one)}" if one and one.is_known else ""

    def abandon(self) -> None:
        """Look no more, and give the shared memory up, since a rank is lost. Not collective."""
        atexit.unregister(self.note_end)
        self.world.watch.remove(self)
        for record, row in zip(self.records, self._own, strict=False):
            if record.row is row:
                record.move(memoryview(bytearray(NBYTES)).cast("q"))
        self._own = []
        self.datagrams.close()

    def look(self) -> None:
        """Take in the records of other nodes, give those of this one, and act on what all records say."""
        self.datagrams.receive(self.rows)
        if self.hanging is not None:  # before the beat: a process that was given up shows no sign of life
            self.hanging.look([self.seen(rank) for rank in range(len(self.rows))], self._ran_since())
        self._beat()
        if self._is_first(self.local):
            self.datagrams.send(self.rows, self.local)
        self.look_at_stall()

    def _beat(self) -> None:
        row, now = self.rows[self.rank], time.monotonic_ns()
        if now - self._counted >= self._every * 1e9:
            self._looks, self._counted = self._looks + 1, now
            row[WHAT_WORD - len(WORDS)] = packed(self._looks, 0, 0, -1, 0)
        row[BEAT_WORD] = now

    def _ran_since(self) -> Mapping[int, int]:
        """Return in how many more quarters other ranks are known to have run than at the last call."""
        known = [unpacked(row[-len(WORDS) :])[ITERATION] for row in self.rows]
        before, self._known = self._known, known
        counted = [rank for rank, old in enumerate(before) if old or rank in self.local]  # here a count begins with 0
        return {rank: known[rank] - before[rank] for rank in counted if rank != self.rank}

    def _fits(self, row: Sequence[int]) -> bool:
        return all(self.layers.has(one) for one in threads(row))

    def _is_first(self, ranks: Sequence[int], chosen: Callable[[Observation], bool] = lambda one: True) -> bool:
        """Return whether this rank is the lowest of those in `ranks` that are `chosen` and whose watchdogs run."""
        seen = (self.seen(rank) for rank in ranks if rank < self.rank)
        return not any(one.silent <= self.seconds / 2 and chosen(one) for one in seen)

    def seen(self, rank: int) -> Observation:
        """Return a rank's record as it is now."""
        row, *instances = threads(self.rows[rank])[: self._counts[rank]]
        return Observation(rank, self.hosts[rank], row, time.monotonic_ns(), instances)

    def fence(self) -> None:
        """Return once the watchdog has looked, if this process did not run for the stall time: it may be given up."""
        while self.hanging and self.seen(self.rank).silent >= self.seconds:
            time.sleep(self.nap)

    def is_stuck(self) -> bool:
        """Return whether this rank has waited for `seconds`, and is the lowest of its host that waits."""
        me = self.seen(self.rank)
        return self._waits(me) and me.idle >= self.seconds and self._is_first(self.local, self._waits)

    def look_at_stall(self) -> None:
        """Report if this rank has waited for `seconds`, the last report is as old, and no lower rank reports."""
        me = self.seen(self.rank)
        if not self._waits(me) or me.idle < self.seconds:
            return
        if self.is_stuck() and (line := self._left()):
            self.policy.has_ended(line)
        if (me.now - self._reported) / 1e9 < self.seconds:
            return
        if not self._is_first(range(len(self.rows)), lambda one: self._waits(one) and one.idle > self.seconds / 2):
            return
        self._reported = me.now
        others = [self.seen(rank) for rank in range(len(self.rows)) if rank != self.rank]
        self.policy.waits([*report(me, others, self.layers, self.seconds), *self._dropped()])

    def _left(self) -> str:
        """Return a line on a rank whose program has ended, if all others would wait for ever; "" without one.

        As long as a rank computes, reads, or is unknown, this one may wait for that rank, and no job is ended.
        """
        ranks = [self.seen(rank) for rank in range(len(self.rows))]
        ended = [one for one in ranks if one.is_known and one.has_ended]
        if not ended or not all(map(self._rests, ranks)):
            return ""
        who = f"rank {ended[0].rank} on {ended[0].host} has ended while rank {self.rank} waits for it"
        return f"{who}: {self.layers.places(ended[0])}"

    def _rests(self, one: Observation) -> bool:
        """Return whether a rank has ended, or waits for other ranks by a record that is not old, for `seconds`."""
        waits = one.is_waiting and one.silent <= self.seconds / 2
        return one.is_known and one.idle >= self.seconds and (one.has_ended or waits)

    def _dropped(self) -> list[str]:
        """Return a line on the datagrams that were dropped since the last report, if there were any."""
        count, self._refused = self.datagrams.refused - self._refused, self.datagrams.refused
        return [f"dropped {count} datagram(s) that are not from this job"] if count else []

    def _waits(self, one: Observation) -> bool:
        """Return whether a rank waits, for other ranks or for its reader."""
        waits = all(row[WAIT] > 0 or self.layers.is_reading(row) for row in one.rows)
        return one.is_known and waits and not one.has_ended


def _counts(world: World, mine: int) -> list[int]:
    """Return how many records each rank has: one, unless there are instances. Collective."""
    from mpi4py import MPI

    extremes = np.array([mine, -mine], np.int64)
    with world.record.waiting(RANKS):
        world.comm.Allreduce(MPI.IN_PLACE, extremes, MPI.MAX)
    return [mine] * world.size if extremes[0] == -extremes[1] else world.allgather(mine)


@contextmanager
def watching(
    world: World, nets: Sequence[Watched], settings: Watching, records: Sequence[RankRecord] = ()
) -> Iterator[None]:
    """Run a Heartbeats while the block runs, unless `stall_seconds` is 0 or there is a single rank. Collective.

    Raise ScaffeError where ranks should be given up, and DisagreementError unless the settings are the same on all
    ranks. An exception in the block leaves the watchdog running, since closing it would wait for the other ranks.
    """
    seconds, how = settings.stall_seconds, settings.at_stall
    world.agree({"the stall settings": f"{seconds:g} s, {how}"})
    if how == SHRINK:
        raise AgreedError("--stall shrink: only scaffe train goes on without a rank; give --stall abort or say")
    if world.size == 1 or not seconds:
        yield
        return
    comm = Communicator(world.comm)
    watch = Heartbeats(world, comm.node.comm, nets, seconds, how, records, comm.group)
    yield
    watch.close()
    comm.free()


def open_watch(
    world: World, comm: Communicator | None, nets: Sequence[Watched], watching: Watching, team: Team
) -> Heartbeats | None:
    """Return the watch over stalls that the settings ask for; a single rank, without `comm`, waits for no other.

    Collective.
    """
    if comm is None or not watching.stall_seconds:
        return None
    with world.record.waiting(RANKS):
        how = watching.stall_seconds, watching.at_stall, team.all_records, comm.group
        return Heartbeats(world, comm.node.comm, nets, *how)
