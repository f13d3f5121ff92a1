"""Stall: if ranks wait for long, report which ranks are missing and what these were last seen doing.

A waiting rank may be inside MPI, and a missing one may be stopped, so neither can answer. Each rank therefore publishes
its RankRecord in memory that its node's ranks share, and a watchdog thread in each rank reads all records.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from collectives import Communicator, abort
from collectives.execution.window import SharedWindow
from scaffe.errors import AgreedError
from scaffe.monitor.log import log, one_line
from scaffe.monitor.record import (
    BACKWARD,
    BEAT_WORD,
    FORWARD,
    INSTANCES,
    ITERATION,
    LAYER,
    NBYTES,
    NET,
    OPERATION,
    OPERATIONS,
    RANKS,
    SINCE,
    SINCE_WORD,
    TEST,
    WAIT,
    WAITS,
    WORDS,
    Observation,
    RankRecord,
    threads,
)
from scaffe.monitor.watching import ABORT, SAY, SHRINK, Watching
from scaffe.parallel.beacon import Beacon
from scaffe.parallel.giving_up import GivingUp
from scaffe.parallel.instances.team import Team
from scaffe.parallel.instances.topology import ranges
from scaffe.parallel.unreported import Unreported
from scaffe.parallel.world import World
from scaffe.proto import LayerParameter

if TYPE_CHECKING:
    from mpi4py import MPI

LONGEST_NAP = 1.0  # seconds between two checks
MOST_LINES = 16  # of ranks in a report
EXIT_CODE = 1


class _WatchedLayer(Protocol):
    @property
    def label(self) -> str: ...

    @property
    def param(self) -> LayerParameter: ...


class _Watched(Protocol):
    @property
    def layers(self) -> Iterable[_WatchedLayer]: ...


class LayerNames:
    """The names of the layers of the train net and the test nets, by net and layer index."""

    def __init__(self, nets: Sequence[_Watched]):
        self.names = [[layer.label for layer in net.layers] for net in nets]
        self.reading = [[not layer.param.bottom for layer in net.layers] for net in nets]

    def has(self, row: Sequence[int]) -> bool:
        """Return whether a row can be a record of this job: its net, layer, operation and wait exist."""
        net, operation, layer, wait = row[NET], row[OPERATION], row[LAYER], row[WAIT]
        known = net < len(self.names) and layer < len(self.names[net])
        return known and operation < len(OPERATIONS) and wait < len(WAITS)

    def is_reading(self, row: Sequence[int]) -> bool:
        """Return whether a rank may wait for its reader: its layer has no bottoms."""
        return row[OPERATION] in (FORWARD, TEST) and row[LAYER] >= 0 and self.reading[row[NET]][row[LAYER]]

    def is_computing(self, row: Sequence[int]) -> bool:
        """Return whether a rank is in a layer's pass, and waits neither for others nor for its reader."""
        in_layer = row[OPERATION] in (FORWARD, BACKWARD, TEST) and row[LAYER] >= 0
        return in_layer and not row[WAIT] and not self.is_reading(row)

    def place(self, row: Sequence[int]) -> str:
        """Return what a rank is doing: "forward pass of layer conv1, iteration 7".

        A test outside of training has no iteration.
        """
        return self.work(row) if _is_alone(row) else f"{self.work(row)}, iteration {row[ITERATION]}"

    def places(self, one: Observation) -> str:
        """Return what a rank is doing, by instance where several compute: those that do not wait come first.

        For example "instance 2 in backward pass of layer conv1; instances 0-1,3 in backward pass, waiting for the other
        instances; iteration 7". What the main thread does stands before them, unless it waits for them too.
        """
        if all(row[WAIT] == INSTANCES for row in one.instances):
            return self.place(one.row)
        alike: dict[str, list[int]] = {}
        for instance, row in sorted(enumerate(one.instances), key=lambda item: item[1][WAIT] > 0):
            alike.setdefault(self.work(row), []).append(instance)
        parts = [f"instance{'s' * (len(who) > 1)} {ranges(who)} in {what}" for what, who in alike.items()]
        main = [] if one.row[WAIT] == INSTANCES else [self.work(one.row)]
        when = [] if _is_alone(one.row) else [f"iteration {one.row[ITERATION]}"]
        return "; ".join([*main, *parts, *when])

    def work(self, row: Sequence[int]) -> str:
        """Return what a rank, or an instance, is doing, without the iteration."""
        what = OPERATIONS[row[OPERATION]]
        if row[OPERATION] == TEST and row[NET]:
            what += f" net #{row[NET] - 1}"
        name = self.names[row[NET]][row[LAYER]] if row[LAYER] >= 0 else ""
        if self.is_reading(row) and not row[WAIT]:
            what += f", waiting for records of layer {name}"
        elif name:
            what += f", layer {name}" if row[OPERATION] == TEST else f" of layer {name}"
        if row[WAIT]:
            what += f", {WAITS[row[WAIT]]}"
        return what


def _is_alone(row: Sequence[int]) -> bool:
    """Return whether a test runs outside of training."""
    return row[OPERATION] == TEST and not row[NET]


def report(me: Observation, others: Sequence[Observation], layers: LayerNames, patience: float) -> list[str]:
    """Return the lines of a report on a stall that `me` sees: its own operation, then one line for each missing rank.

    A rank is missing in three cases:

    - it is unknown: no record of it has arrived;
    - its watchdog has not run for half of `patience`, in seconds;
    - it waits for no other rank, and has not moved for half as long as `me`, or half of `patience`.

    If no rank is missing and `me` waits for others, each of these gets a line, since a message may be lost.
    """
    lost = [one for one in others if not one.is_known]
    known = [one for one in others if one.is_known]
    missing = [
        one
        for one in known
        if one.silent > patience / 2 or (not one.is_waiting and one.idle > min(me.idle, patience) / 2)
    ]
    if missing or lost:
        lines = [_line(one, layers, patience) for one in sorted([*missing, *lost], key=lambda one: one.rank)]
        title = "missing:"
    elif me.is_waiting and others:
        lines, title = [_line(one, layers, patience) for one in others], "no rank is missing, all wait or move:"
    else:
        lines, title = [], "no other rank is missing"
    if len(lines) > MOST_LINES:
        lines[MOST_LINES:] = [f"and {len(lines) - MOST_LINES} more ranks"]
    return [f"rank {me.rank} has not moved for {me.idle:.0f} s: {layers.places(me)}; {title}", *lines]


def _line(one: Observation, layers: LayerNames, patience: float) -> str:
    who = f"rank {one.rank} on {one.host}"
    if not one.is_known:
        return f"{who}: unknown, no record has arrived from its node"
    stopped = f"; its process has not run for {one.silent:.0f} s" if one.silent > patience / 2 else ""
    return f"{who}: last seen in {layers.places(one)}, {one.idle:.0f} s ago{stopped}"


class StallWatch:
    """A watchdog thread in each rank, which reports when the rank has waited for `seconds`, and again after as long.

    Of the ranks that wait, the lowest reports. `how`, one of STALL, is "abort" if the first report ends the job, and
    "shrink" if ranks that hang are ended (see giving_up.py). With any of them the job ends if a process has ended, and
    MPI does not report it (see unreported.py), or if a rank's program has ended, as by sys.exit in a callback, and all
    others wait for ranks. `nets` are the train net and the test nets, and `node` is the communicator of the ranks that
    share memory with this one. Records of other nodes arrive by datagrams; a rank of which none has arrived is reported
    as unknown. `records` are that of the main thread and those of several instances, by default the first alone.
    Collective; so is `close`.
    """

    def __init__(
        self,
        world: World,
        node: MPI.Intracomm,
        nets: Sequence[_Watched],
        seconds: float,
        how: str = SAY,
        records: Sequence[RankRecord] = (),
    ):
        self.world, self.layers, self.seconds, self.how = world, LayerNames(nets), seconds, how
        self.rank, self.hosts = world.rank, [host for host, _ in world.places]  # kept while ranks are lost
        self._firsts = world.firsts
        self._nap = min(LONGEST_NAP, seconds / 8)
        self.records = records or [world.record]
        self._counts = world.allgather(len(self.records))  # by rank
        nbytes = (max(self._counts) + 1) * NBYTES  # the last row: since when the watchdog runs without a pause
        self._window = SharedWindow(node, nbytes)
        self.local = node.allgather(world.rank)
        self.rows = [memoryview(bytearray(nbytes)).cast("q") for _ in range(world.size)]
        for rank, segment in zip(self.local, self._window.segments, strict=True):
            self.rows[rank] = segment.data.cast("q")
        for k, record in enumerate(self.records):
            record.move(self.rows[self.rank][k * len(WORDS) : (k + 1) * len(WORDS)])
        self._beat()  # before the next call of MPI, so that no rank of this host is unknown from then on
        self.beacon = Beacon(world.comm, set(self.local), seconds / 4, self._fits, max(self._counts) + 1)
        self._reported = 0  # the time of the last report, ns
        self._refused, self._failure = 0, ""  # already reported: dropped datagrams, the watchdog's own failure
        self.giving_up: GivingUp | None = None
        if how == SHRINK:
            layers = self.layers
            self.giving_up = GivingUp(world, self.local, seconds, self._nap, layers.is_computing, layers.places)
        self.unreported = Unreported(world, self.local, seconds, self._nap)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stall", daemon=True)
        self._thread.start()
        atexit.register(self.note_end)  # after the collectives' functions, so that it is called before they wait

    def note_end(self) -> None:
        """Note that the program has ended before this watch: the other ranks may wait for this one for ever.

        Tell other nodes at once: Python ends the watch's thread before MPI_Finalize waits for these ranks.
        """
        self.records[0].end()
        self.beacon.send_last(self.rows, [self.rank])

    def close(self) -> None:
        """End the thread, and free the shared memory. Collective."""
        self.abandon()
        self.rows = []
        self._window.free()

    def watches(self, first: int) -> bool:
        """Return whether this watch goes on, and the process that was started as rank `first` is one of its ranks."""
        return not self._stop.is_set() and first in self._firsts

    def last_of(self, first: int) -> str:
        """Return what a rank was last seen doing: "; last seen in backward pass of layer conv1, iteration 7", or "".

        `first` is its number at the job's start: the watch goes on while ranks are renumbered.
        """
        one = self.seen(self._firsts.index(first)) if self.rows and first in self._firsts else None  # none of a spare
        return f"; last seen in {self.layers.places(one)}" if one and one.is_known else ""

    def abandon(self) -> None:
        """End the thread, and give the shared memory up, since a rank is lost. Not collective."""
        atexit.unregister(self.note_end)
        self._stop.set()
        self._thread.join()
        for record in self.records:
            record.move(memoryview(bytearray(NBYTES)).cast("q"))
        self.beacon.close()

    def _run(self) -> None:
        while not self._stop.wait(self._nap):
            try:
                self._watch()
            except Exception as error:  # the watchdog must outlive its own errors
                failure = f"{type(error).__name__}: {error}"
                if failure != self._failure:
                    log.error("The stall watchdog failed and continues: %s", failure)
                self._failure = failure

    def _watch(self) -> None:
        heard = self.beacon.receive(self.rows)
        if self.giving_up is not None:  # before the beat: a process that was given up shows no sign of life
            self.giving_up.look([self.seen(rank) for rank in range(len(self.rows))], heard)
        self._beat()
        if self._is_first(self.local):
            self.beacon.send(self.rows, self.local)
        self.look()

    def _beat(self) -> None:
        row, now = self.rows[self.rank], time.monotonic_ns()
        if (now - row[BEAT_WORD]) / 1e9 > self.seconds / 2:
            row[SINCE_WORD - len(WORDS)] = now  # of the last row, before the beat
        row[BEAT_WORD] = now

    def _fits(self, row: Sequence[int]) -> bool:
        return all(self.layers.has(one) for one in threads(row))

    def _is_first(self, ranks: Sequence[int], chosen: Callable[[Observation], bool] = lambda one: True) -> bool:
        """Return whether this rank is the lowest of those in `ranks` that are `chosen` and whose watchdogs run."""
        seen = (self.seen(rank) for rank in ranks if rank < self.rank)
        return not any(one.silent <= self.seconds / 2 and chosen(one) for one in seen)

    def seen(self, rank: int) -> Observation:
        """Return a rank's record as it is now."""
        rows = threads(self.rows[rank])
        row, *instances = rows[: self._counts[rank]]
        return Observation(rank, self.hosts[rank], row, time.monotonic_ns(), instances, rows[-1][SINCE])

    def fence(self) -> None:
        """Return once the watchdog has looked, if this process did not run for the stall time: it may be given up."""
        while self.giving_up and self.seen(self.rank).silent >= self.seconds:
            time.sleep(self._nap)

    def look(self) -> None:
        """Report if this rank has waited for `seconds`, the last report is as old, and no lower rank reports."""
        me = self.seen(self.rank)
        if not self._is_stuck(me) or me.idle < self.seconds:
            return
        if self._is_first(self.local, self._is_stuck) and (line := self.unreported.look() or self._left()):
            end_job(self.world, [line])
        if (me.now - self._reported) / 1e9 < self.seconds:
            return
        if not self._is_first(range(len(self.rows)), lambda one: self._is_stuck(one) and one.idle > self.seconds / 2):
            return
        self._reported = me.now
        others = [self.seen(rank) for rank in range(len(self.rows)) if rank != self.rank]
        lines = [*report(me, others, self.layers, self.seconds), *self._dropped()]
        if self.how == ABORT:
            end_job(self.world, lines)
        for line in lines:
            log.warning("Stall: %s", line)

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
        count, self._refused = self.beacon.refused - self._refused, self.beacon.refused
        return [f"dropped {count} datagram(s) that are not from this job"] if count else []

    def _is_stuck(self, one: Observation) -> bool:
        """Return whether a rank waits, for other ranks or for its reader."""
        waits = all(row[WAIT] > 0 or self.layers.is_reading(row) for row in one.rows)
        return one.is_known and waits and not one.has_ended


def end_job(world: World, lines: Sequence[str]) -> None:
    """End the job from a watchdog's thread, with these lines: the main thread may never return from MPI."""
    from mpi4py import MPI

    abort.write("".join(f"scaffe: {one_line(line)}\n" for line in lines))
    if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
        world.abort(EXIT_CODE)
    os._exit(EXIT_CODE)  # the launcher ends the others


@contextmanager
def watching(
    world: World, nets: Sequence[_Watched], settings: Watching, records: Sequence[RankRecord] = ()
) -> Iterator[None]:
    """Run a StallWatch while the block runs, unless `stall_seconds` is 0 or there is a single rank. Collective.

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
    watch = StallWatch(world, comm.node.comm, nets, seconds, how, records)
    yield
    watch.close()
    comm.free()


def open_watch(
    world: World, comm: Communicator | None, nets: Sequence[_Watched], watching: Watching, team: Team
) -> StallWatch | None:
    """Return the watch over stalls that the settings ask for; a single rank, without `comm`, waits for no other.

    Collective.
    """
    if comm is None or not watching.stall_seconds:
        return None
    with world.record.waiting(RANKS):
        return StallWatch(world, comm.node.comm, nets, watching.stall_seconds, watching.at_stall, team.all_records)
