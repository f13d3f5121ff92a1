"""Stall: when ranks wait for long, say for which others, and what these were last seen doing.

A rank that waits may be inside MPI and one that is waited for may be stopped, so neither can be asked. Each rank
publishes its `Record` beforehand, where its node's ranks share memory; a watchdog thread in each reads them all.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from collectives import Communicator, abort
from collectives.execution.window import SharedWindow
from scaffe.errors import ScaffeError
from scaffe.monitor.log import log, one_line
from scaffe.monitor.record import (
    BEAT_WORD,
    FORWARD,
    ITERATION,
    LAYER,
    NBYTES,
    NET,
    OPERATION,
    OPERATIONS,
    TEST,
    WAIT,
    WAITS,
    Observation,
    RankRecord,
    unpacked,
)
from scaffe.parallel.beacon import Beacon

if TYPE_CHECKING:
    from mpi4py import MPI

    from scaffe.net import Net
    from scaffe.parallel.world import World

LONGEST_NAP = 1.0  # seconds between two looks
MOST_LINES = 16  # of ranks in a report
EXIT_CODE = 1


def check_seconds(seconds: float) -> None:
    """Raise ScaffeError unless it is a time to wait, or 0 for never."""
    if not 0 <= seconds <= threading.TIMEOUT_MAX:
        raise ScaffeError(f"stall_seconds must be 0 (off) or more, got {seconds:g}")


class Layers:
    """The layers of the train net and the test nets, by number, as a report calls them."""

    def __init__(self, nets: Sequence[Net]):
        self.names = [[layer.name for layer in net.layers] for net in nets]
        self.reading = [[not layer.param.bottom for layer in net.layers] for net in nets]

    def has(self, row: Sequence[int]) -> bool:
        """Say whether a record can be a rank's of this job: its numbers are those of nets, layers and deeds."""
        net, operation, layer, wait = row[NET], row[OPERATION], row[LAYER], row[WAIT]
        known = net < len(self.names) and layer < len(self.names[net])
        return known and operation < len(OPERATIONS) and wait < len(WAITS)

    def is_reading(self, row: Sequence[int]) -> bool:
        """Say whether a rank waits for its reader: it is at a layer that has no bottoms."""
        return row[OPERATION] in (FORWARD, TEST) and row[LAYER] >= 0 and self.reading[row[NET]][row[LAYER]]

    def place(self, row: Sequence[int]) -> str:
        """Return what a rank does and where: forward pass of layer conv1, iteration 7. A test alone has none."""
        what = OPERATIONS[row[OPERATION]]
        alone = row[OPERATION] == TEST and not row[NET]
        if row[OPERATION] == TEST and not alone:
            what += f" net #{row[NET] - 1}"
        name = self.names[row[NET]][row[LAYER]] if row[LAYER] >= 0 else ""
        if self.is_reading(row) and not row[WAIT]:
            what += f", waiting for records of layer {name}"
        elif name:
            what += f", layer {name}" if row[OPERATION] == TEST else f" of layer {name}"
        if row[WAIT]:
            what += f", {WAITS[row[WAIT]]}"
        return what if alone else f"{what}, iteration {row[ITERATION]}"


def report(me: Observation, others: Sequence[Observation], layers: Layers, patience: float) -> list[str]:
    """Return what to say of a stall that `me` sees: its own place, then a line for each rank that is missing.

    Missing is who does not run, or has not moved for half as long and waits for no other; if nobody is, who has not
    been heard of; if all wait, all are told, since one of them has lost a message.
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
    return [f"rank {me.rank} has not moved for {me.idle:.0f} s: {layers.place(me.row)}; {title}", *lines]


def _line(one: Observation, layers: Layers, patience: float) -> str:
    who = f"rank {one.rank} on {one.host}"
    if not one.is_known:
        return f"{who}: nothing is known of it, no message came from its node"
    stopped = f"; its process has not run for {one.silent:.0f} s" if one.silent > patience / 2 else ""
    return f"{who}: last seen in {layers.place(one.row)}, {one.idle:.0f} s ago{stopped}"


class Watch:
    """A thread in each rank that reports when this rank has waited for `seconds`, and again after as long.

    `nets` are the train net and the test nets. With `abort` the first report ends the job. Of the ranks that wait one
    reports, the lowest. Between nodes records travel by datagrams; what these can't tell is named as unknown.
    Collective; so is `close`. `node` are the ranks that share memory with this one.
    """

    def __init__(self, world: World, node: MPI.Intracomm, nets: Sequence[Net], seconds: float, abort: bool = False):
        self.world, self.layers, self.seconds, self.abort = world, Layers(nets), seconds, abort
        self.rank, self.hosts = world.rank, [host for host, _ in world.places]
        self._window = SharedWindow(node, NBYTES)
        self.local = node.allgather(world.rank)
        self.rows = [memoryview(bytearray(NBYTES)).cast("q") for _ in range(world.size)]
        for rank, segment in zip(self.local, self._window.segments, strict=True):
            self.rows[rank] = segment.data.cast("q")
        self.record: RankRecord = world.record
        self.record.move(self.rows[self.rank])
        self.beacon = Beacon(world.comm, set(self.local), seconds / 4, self._fits)
        self._said = 0  # when, and of which stall
        self._refused, self._failure = 0, ""  # what has been said of these
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stall", daemon=True)
        self._beat()
        self._thread.start()

    def close(self) -> None:
        """End the thread, and give the memory back."""
        self._stop.set()
        self._thread.join()
        self.record.move(memoryview(bytearray(NBYTES)).cast("q"))
        self.rows = []
        self.beacon.close()
        self._window.free()

    def _run(self) -> None:
        nap = min(LONGEST_NAP, self.seconds / 8)
        while not self._stop.wait(nap):
            try:
                self._watch()
            except Exception as error:  # who watches over others must outlive its own mistakes
                failure = f"{type(error).__name__}: {error}"
                if failure != self._failure:
                    log.error("The watch over stalls failed and goes on: %s", failure)
                self._failure = failure

    def _watch(self) -> None:
        self._beat()
        self.beacon.receive(self.rows)
        if self._speaks(self.local):
            self.beacon.send(self.rows, self.local)
        self.look()

    def _beat(self) -> None:
        self.rows[self.rank][BEAT_WORD] = time.monotonic_ns()

    def _fits(self, row: Sequence[int]) -> bool:
        return self.layers.has(unpacked(row))

    def _speaks(self, ranks: Sequence[int], chosen: Callable[[Observation], bool] = lambda one: True) -> bool:
        """Say whether this rank is the first of those whose watchdogs run and that are chosen."""
        seen = (self.seen(rank) for rank in ranks if rank < self.rank)
        return not any(one.silent <= self.seconds / 2 and chosen(one) for one in seen)

    def seen(self, rank: int) -> Observation:
        """Return what is known of a rank now."""
        return Observation(rank, self.hosts[rank], unpacked(self.rows[rank]), time.monotonic_ns())

    def look(self) -> None:
        """Report if this rank has waited for long, has not said so for as long, and no lower rank does."""
        me = self.seen(self.rank)
        if not self._is_stuck(me) or me.idle < self.seconds:
            return
        if (me.now - self._said) / 1e9 < self.seconds:
            return
        if not self._speaks(range(self.world.size), lambda one: self._is_stuck(one) and one.idle > self.seconds / 2):
            return
        self._said = me.now
        others = [self.seen(rank) for rank in range(self.world.size) if rank != self.rank]
        lines = [*report(me, others, self.layers, self.seconds), *self._tell_refused()]
        if self.abort:
            self._end(lines)
        for line in lines:
            log.warning("Stall: %s", line)

    def _tell_refused(self) -> list[str]:
        """Return a line on the datagrams that were refused since the last report, if any were."""
        count, self._refused = self.beacon.refused - self._refused, self.beacon.refused
        return [f"{count} datagram(s) came that are not this job's: dropped"] if count else []

    def _is_stuck(self, one: Observation) -> bool:
        """Say whether a rank waits, for others or for its reader, rather than computes."""
        return one.is_known and (one.is_waiting or self.layers.is_reading(one.row))

    def _end(self, lines: Sequence[str]) -> None:
        """End the job from this thread: its main thread may never come out of MPI."""
        from mpi4py import MPI

        abort.write("".join(f"scaffe: {one_line(line)}\n" for line in lines))
        if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
            self.world.comm.Abort(EXIT_CODE)
        os._exit(EXIT_CODE)  # the launcher ends the others


@contextmanager
def watching(world: World, nets: Sequence[Net], seconds: float, abort: bool) -> Iterator[None]:
    """Have a Watch over what is done in the block, unless `seconds` is 0 or a rank alone waits for nobody. Collective.

    Raise ScaffeError unless it is a time, the same on all ranks. An error ends the job, with no wait for the others.
    """
    world.together(lambda: check_seconds(seconds))
    world.agree({"the stall settings": f"{seconds:g} s, abort: {abort}"})
    if world.size == 1 or not seconds:
        yield
        return
    comm = Communicator(world.comm)
    watch = Watch(world, comm.node.comm, nets, seconds, abort)
    yield
    watch.close()
    comm.free()
