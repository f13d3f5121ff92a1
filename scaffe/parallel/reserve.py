"""Reserve: the part of a World that keeps spares for lost ranks' places."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from collectives.loss import ignoring_loss
from scaffe.errors import RanksLostError, ScaffeError
from scaffe.monitor.log import log
from scaffe.monitor.log import start as start_log
from scaffe.parallel.mpi_library import can_shrink
from scaffe.parallel.spares import FINALIZES, JobProcess, Regrouped, Spares
from scaffe.parallel.watch.watch import Probe

if TYPE_CHECKING:
    from mpi4py import MPI

    from collectives.group import Group
    from scaffe.files.lock_owner import Owner


class LostRank(NamedTuple):
    """A rank that has ended, as it was numbered then; `first` is its number at the job's start.

    `pid` is 0 where it was on another host.
    """

    rank: int
    host: str
    pid: int
    first: int

    def __str__(self) -> str:
        first = "" if self.first == self.rank else f", at the start rank {self.first}"
        process = f"process {self.pid} " if self.pid else ""
        return f"rank {self.rank} ({process}on {self.host}{first})"


class Reserve:
    """What a World does where some of the launch's ranks are spares.

    `spares` is None where none are. `fills_places` is whether they take lost ranks' places now, the same on all ranks.
    `process_table` is the watch's probe of processes.
    """

    comm: MPI.Intracomm
    rank: int
    size: int
    places: list[tuple[str, list[int]]]
    pids: list[int]
    gpus: list[str]
    firsts: list[int]
    lost: list[LostRank]
    launched: list[Owner]
    group: Group | None
    _launch: MPI.Group  # of the processes at the job's start
    process_table: Probe | None = None
    spares: Spares | None = None
    fills_places = False
    is_cut_off = False

    @property
    def is_spare(self) -> bool:
        """Whether this process waits to take a lost rank's place."""
        return self.spares is not None and self.spares.is_waiting

    @property
    def is_whole(self) -> bool:
        """Whether there are as many ranks as at the start, since spares have taken the places of all that were lost."""
        return self.size == (self.spares.size if self.spares else self.size + len(self.lost))

    @property
    def waiting_spares(self) -> int:
        """The number of spares that can take places."""
        return len(self.spares.waiting) if self.spares else 0

    @property
    def has_empty_places(self) -> bool:
        """Whether a spare waits that could take a place that was lost when none was taken.

        The root's place is not one: another rank has begun its work.
        """
        if self.spares is None or not self.spares.waiting:
            return False
        lost, (root, *others) = {one.first for one in self.lost}, [one.number for one in self.spares.seats]
        return root not in lost and not lost.isdisjoint(others)

    @property
    def reports_losses(self) -> bool:
        """Whether this rank logs what has become of the others: the first that has not taken a place just now."""
        if self.spares is None or not self.fills_places:
            return self.rank == 0
        return self.rank == next((k for k, one in enumerate(self.spares.seats) if one not in self.spares.new), 0)

    @property
    def name(self) -> str:
        """What an error of this rank alone begins with."""
        return f"spare {self.spares.me.number}" if self.spares and self.is_spare else f"rank {self.rank}"

    def missed(self) -> set[int]:
        """Return the ranks of which MPI knows that they have ended, by their numbers at the start. Not collective."""
        if not can_shrink():
            return set()
        failed = self.comm.Get_failed()
        found = {*failed.Translate_ranks([*range(failed.size)], self._launch)}
        failed.Free()
        return found

    def has_spare(self, number: int) -> bool:
        """Return whether the process that was started as rank `number` waits to take a lost rank's place."""
        return self.spares is not None and any(one.number == number for one in self.spares.waiting)

    def misses_spare(self, number: int) -> bool:
        """Return whether MPI knows, on this rank, that the spare started as rank `number` has ended. Not collective."""
        return self.spares is not None and any(one.number == number for one in self.spares.ended())

    def name_of(self, number: int) -> str:
        """Return what the process that was started as rank `number` is now: "rank 2", or "spare 3" with that number."""
        if self.has_spare(number):
            return f"spare {number}"
        ranks = [one.number for one in self.spares.seats] if self.spares and self.is_spare else self.firsts
        return f"rank {ranks.index(number) if number in ranks else number}"

    def set_aside(self, count: int) -> None:
        """Make spares of the last `count` ranks; the World of each is then itself alone. Collective.

        A spare returns once the other ranks are set up, and the root has called `start_spares`.
        """
        me = JobProcess(self.firsts[self.rank], *self.places[self.rank], self.pids[self.rank])
        members = self.comm.allgather(me)  # as a spare it may come to any host's place
        self.spares = spares = Spares(self.comm, members, count)
        self._take_seats(spares, spares.split())
        self.share_cores()
        atexit.register(self.dismiss_spares, FINALIZES)  # where a program ends without `leave`
        for one in spares.waiting:
            text = "Spare: process %d on %s, started as rank %d, waits to take a lost rank's place"
            log.info(text, one.pid, one.host, one.number)
        if self.is_spare and not spares.wait_for_begin():
            self.standby()  # which ends this process with the others
            raise ScaffeError("a rank was lost before this spare was set up; start the job again")

    def start_spares(self) -> None:
        """Let the spares set themselves up, since all other ranks are. Collective over these."""
        if self.spares is None or self.is_spare:
            return
        if self.rank == 0:
            self.spares.begin()
        with ignoring_loss():  # no rank goes on, where it may revoke, before they have begun
            self.comm.Agree(True)

    def standby(self) -> list[LostRank]:
        """Wait as a spare until this process takes a lost rank's place, and return the lost ranks, as `shrink` does.

        If the ranks end, end with them. Raise RanksLostError if none is left.
        """
        lost: list[LostRank] = []
        while self.spares is not None and self.is_spare:
            self.spares.wait()
            lost = self._regroup(self.spares)
        return lost

    def _regroup(self, spares: Spares) -> list[LostRank]:
        """Go on without lost ranks, spares in their places; return the lost ones. Collective over all processes."""
        was_spare, ranks = spares.is_waiting, self._ranks(spares)
        comm, changed, code = spares.regroup()
        if code is not None:
            if was_spare and code & FINALIZES:
                sys.exit(0)
            if was_spare:
                self.leave(code)
            raise RanksLostError("a rank was lost when others had ended")
        for one, replaced in changed.joined:
            ranks[one.number] = ranks[replaced.number]
        known = [one.first for one in self.lost]  # lost when no place could be taken
        gone = [one for one in changed.lost if one.number not in known]
        lost = [LostRank(ranks[one.number], one.host, one.pid, one.number) for one in gone]
        self.is_cut_off |= spares.is_cut_off
        self.lost += lost  # first: `comm` does not miss them, as a watchdog may see
        self._take_seats(spares, comm)
        if spares.is_waiting:
            return lost
        if log.handlers:
            start_log(self.rank)
        if self.reports_losses:
            _log_changes(spares, changed, ranks)
        return lost

    def _ranks(self, spares: Spares) -> dict[int, int]:
        """Return the ranks of all members, also of lost ones that no spare has replaced, by their ranks at the launch.

        These are the ranks in the log: while no spare takes places, ranks are renumbered, and seats are not.
        """
        seats = {one.number: seat for seat, one in enumerate(spares.seats)}  # all that a spare knows
        present = {first: rank for rank, first in enumerate(self.firsts)}
        return seats | {one.first: one.rank for one in self.lost} | present

    def _take_seats(self, spares: Spares, comm: MPI.Intracomm) -> None:
        """Make the ranks those of `comm`: the seats, or for a spare itself alone."""
        members = [spares.me] if spares.is_waiting else spares.seats
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.places, self.pids = [(one.host, one.cores) for one in members], [one.pid for one in members]
        self.gpus, self.firsts = [""] * self.size, [one.number for one in members]
        self.group = None

    def share_cores(self) -> None:
        """Set the number of threads; see World."""

    def leave(self, code: int) -> NoReturn:
        """End this process, and the spares; see World."""
        raise NotImplementedError

    def dismiss_spares(self, code: int) -> None:
        """End the spares with this exit code, or FINALIZES.

        Called by all ranks that are left, last of all, and by the spares.
        """
        if self.spares is None:
            return
        if not self.is_spare:
            ended = self.spares.dismiss(code)
            if self.rank == 0:
                _log_ended(ended)
        with ignoring_loss():
            self.spares.comm.Barrier()


def _log_changes(spares: Spares, changed: Regrouped, ranks: Mapping[int, int]) -> None:
    """Log which spares have ended, and which have taken the places of which of the former `ranks`."""
    _log_ended(changed.ended)
    joined = [one for one, _ in changed.joined if one in spares.seats]
    for k, one in enumerate(joined, 1):
        text = "Process %d on %s, a spare, takes the place of rank %d; %d spare(s) are left"
        left = len(spares.waiting) + len(joined) - k
        log.warning(text, one.pid, one.host, ranks[one.number], left)


def _log_ended(ended: Sequence[JobProcess]) -> None:
    for one in ended:
        log.warning("Lost a spare: process %d on %s", one.pid, one.host)
