"""Stall: if ranks wait for long, report which ranks are missing and what these were last seen doing.

A waiting rank may be inside MPI, and a missing one may be stopped, so neither can answer. Each rank therefore publishes
its RankRecord in memory that its node's ranks share, and a watchdog thread in each rank reads all records.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from collectives import Communicator, abort
from collectives.execution.window import SharedWindow
from scaffe.errors import ScaffeError
from scaffe.monitor.log import log, one_line
from scaffe.monitor.record import (
    BEAT_WORD,
    FORWARD,
    INSTANCES,
    ITERATION,
    LAYER,
    NBYTES,
    NET,
    OPERATION,
    OPERATIONS,
    TEST,
    WAIT,
    WAITS,
    WORDS,
    Observation,
    RankRecord,
    threads,
)
from scaffe.monitor.watching import Watching
from scaffe.parallel.beacon import Beacon
from scaffe.parallel.instances.team import Team
from scaffe.parallel.instances.topology import ranges
from scaffe.parallel.world import World
from scaffe.proto import LayerParameter

if TYPE_CHECKING:
    from mpi4py import MPI

LONGEST_NAP = 1.0  # seconds between two checks
MOST_LINES = 16  # of ranks in a report
EXIT_CODE = 1


def check_seconds(seconds: float) -> None:
    """Raise ScaffeError unless `seconds` is a waiting time, or 0 for no watchdog."""
    if not 0 <= seconds <= threading.TIMEOUT_MAX:
        raise ScaffeError(f"stall_seconds must be 0 (off) or more, got {seconds:g}")


class _WatchedLayer(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def param(self) -> LayerParameter: ...


class _Watched(Protocol):
    @property
    def layers(self) -> Iterable[_WatchedLayer]: ...


class LayerNames:
    """The names of the layers of the train net and the test nets, by net and layer index."""

    def __init__(self, nets: Sequence[_Watched]):
        self.names = [[layer.name for layer in net.layers] for net in nets]
        self.reading = [[not layer.param.bottom for layer in net.layers] for net in nets]

    def has(self, row: Sequence[int]) -> bool:
        """Return whether a row can be a record of this job: its net, layer, operation and wait exist."""
        net, operation, layer, wait = row[NET], row[OPERATION], row[LAYER], row[WAIT]
        known = net < len(self.names) and layer < len(self.names[net])
        return known and operation < len(OPERATIONS) and wait < len(WAITS)

    def is_reading(self, row: Sequence[int]) -> bool:
        """Return whether a rank may wait for its reader: its layer has no bottoms."""
        return row[OPERATION] in (FORWARD, TEST) and row[LAYER] >= 0 and self.reading[row[NET]][row[LAYER]]

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

    Of the ranks that wait, the lowest reports. With `abort` the first report ends the job. `nets` are the train net and
    the test nets, and `node` is the communicator of the ranks that share memory with this one. Records of other nodes
    arrive by datagrams; a rank of which none has arrived is reported as unknown. `records` are that of the
    main thread and those of several instances, by default the first alone. Collective; so is `close`.
    """

    def __init__(
        self,
        world: World,
        node: MPI.Intracomm,
        nets: Sequence[_Watched],
        seconds: float,
        abort: bool = False,
        records: Sequence[RankRecord] = (),
    ):
        self.world, self.layers, self.seconds, self.abort = world, LayerNames(nets), seconds, abort
        self.rank, self.hosts = world.rank, [host for host, _ in world.places]
        self.records = records or [world.record]
        self._counts = world.allgather(len(self.records))  # by rank
        nbytes = max(self._counts) * NBYTES
        self._window = SharedWindow(node, nbytes)
        self.local = node.allgather(world.rank)
        self.rows = [memoryview(bytearray(nbytes)).cast("q") for _ in range(world.size)]
        for rank, segment in zip(self.local, self._window.segments, strict=True):
            self.rows[rank] = segment.data.cast("q")
        for k, record in enumerate(self.records):
            record.move(self.rows[self.rank][k * len(WORDS) : (k + 1) * len(WORDS)])
        self.beacon = Beacon(world.comm, set(self.local), seconds / 4, self._fits, max(self._counts))
        self._reported = 0  # the time of the last report, ns
        self._refused, self._failure = 0, ""  # already reported: dropped datagrams, the watchdog's own failure
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stall", daemon=True)
        self._beat()
        self._thread.start()

    def close(self) -> None:
        """End the thread, and free the shared memory. Collective."""
        self._stop.set()
        self._thread.join()
        for record in self.records:
            record.move(memoryview(bytearray(NBYTES)).cast("q"))
        self.rows = []
        self.beacon.close()
        self._window.free()

    def last_of(self, rank: int) -> str:
        """Return what a rank was last seen doing: "; last seen in backward pass of layer conv1, iteration 7", or ""."""
        one = self.seen(rank)
        return f"; last seen in {self.layers.places(one)}" if one.is_known else ""

    def abandon(self) -> None:
        """End the thread, and give the shared memory up, since a rank is lost. Not collective."""
        self._stop.set()
        self._thread.join()
        for record in self.records:
            record.move(memoryview(bytearray(NBYTES)).cast("q"))
        self.beacon.close()

    def _run(self) -> None:
        nap = min(LONGEST_NAP, self.seconds / 8)
        while not self._stop.wait(nap):
            try:
                self._watch()
            except Exception as error:  # the watchdog must outlive its own errors
                failure = f"{type(error).__name__}: {error}"
                if failure != self._failure:
                    log.error("The stall watchdog failed and continues: %s", failure)
                self._failure = failure

    def _watch(self) -> None:
        self._beat()
        self.beacon.receive(self.rows)
        if self._is_first(self.local):
            self.beacon.send(self.rows, self.local)
        self.look()

    def _beat(self) -> None:
        self.rows[self.rank][BEAT_WORD] = time.monotonic_ns()

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

    def look(self) -> None:
        """Report if this rank has waited for `seconds`, the last report is as old, and no lower rank reports."""
        me = self.seen(self.rank)
        if not self._is_stuck(me) or me.idle < self.seconds:
            return
        if (me.now - self._reported) / 1e9 < self.seconds:
            return
        if not self._is_first(range(self.world.size), lambda one: self._is_stuck(one) and one.idle > self.seconds / 2):
            return
        self._reported = me.now
        others = [self.seen(rank) for rank in range(self.world.size) if rank != self.rank]
        lines = [*report(me, others, self.layers, self.seconds), *self._dropped()]
        if self.abort:
            self._end(lines)
        for line in lines:
            log.warning("Stall: %s", line)

    def _dropped(self) -> list[str]:
        """Return a line on the datagrams that were dropped since the last report, if there were any."""
        count, self._refused = self.beacon.refused - self._refused, self.beacon.refused
        return [f"dropped {count} datagram(s) that are not from this job"] if count else []

    def _is_stuck(self, one: Observation) -> bool:
        """Return whether a rank waits, for other ranks or for its reader."""
        return one.is_known and all(row[WAIT] > 0 or self.layers.is_reading(row) for row in one.rows)

    def _end(self, lines: Sequence[str]) -> None:
        """End the job from this thread: the main thread may never return from MPI."""
        from mpi4py import MPI

        abort.write("".join(f"scaffe: {one_line(line)}\n" for line in lines))
        if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
            self.world.abort(EXIT_CODE)
        os._exit(EXIT_CODE)  # the launcher ends the others


@contextmanager
def watching(
    world: World, nets: Sequence[_Watched], seconds: float, abort: bool, records: Sequence[RankRecord] = ()
) -> Iterator[None]:
    """Run a StallWatch while the block runs, unless `seconds` is 0 or there is a single rank. Collective.

    Raise ScaffeError unless `seconds` is a waiting time, and DisagreementError unless it is the same on all ranks. An
    exception in the block leaves the watchdog running, since closing it would wait for the other ranks.
    """
    world.together(lambda: check_seconds(seconds))
    world.agree({"the stall settings": f"{seconds:g} s, abort: {abort}"})
    if world.size == 1 or not seconds:
        yield
        return
    comm = Communicator(world.comm)
    watch = StallWatch(world, comm.node.comm, nets, seconds, abort, records)
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
    return StallWatch(world, comm.node.comm, nets, watching.stall_seconds, watching.stall_abort, team.all_records)
