"""Spares: the last ranks of a launch, which wait, and take the places of lost ranks (--spares K).

All processes of a job keep the same lists of seats and of spares. These change in `regroup` alone, by the group that
MPI's Shrink returns on all of them: so that no message is needed to agree on who sits where.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from collectives.loss import ignoring_loss
from scaffe.errors import RanksLostError
from scaffe.parallel.cut_off import is_cut_off

if TYPE_CHECKING:
    from mpi4py import MPI

PAUSE = 0.02  # seconds between two looks of a spare: MPI's own waits would keep a core busy
CODE = (1 << 8) - 1  # the bits of an exit code
SPLIT, GOES_ON, FINALIZES = 1 << 8, 1 << 9, 1 << 10  # bits that all processes must have


class JobProcess(NamedTuple):
    """A process of a job: its rank at the launch, its host, the cores that it is bound to, and its id there."""

    number: int
    host: str
    cores: list[int]
    pid: int


class Regrouped(NamedTuple):
    """What `regroup` has changed: lost members; spares that got a seat, with its former member; spares that ended."""

    lost: list[JobProcess]
    joined: list[tuple[JobProcess, JobProcess]]
    ended: list[JobProcess]


class Spares:
    """The processes of a job: `seats`, the members by the rank that each has, and `waiting`, the spares.

    `comm` is the communicator of them all, whose last `count` ranks begin as spares, and `members` its processes by
    rank. `size` is the number of seats as long as there are spares; `new` are the members that took seats last.
    `is_cut_off` is whether seats that were lost may only be out of reach, and go on without these.
    """

    is_cut_off = False

    def __init__(self, comm: MPI.Intracomm, members: Sequence[JobProcess], count: int):
        self.comm, self.members = comm, list(members)
        self.size = comm.size - count
        self.seats, self.waiting = self.members[: self.size], self.members[self.size :]
        self.new: list[JobProcess] = []

    @property
    def me(self) -> JobProcess:
        """The member that is this process."""
        return self.members[self.comm.rank]

    @property
    def is_waiting(self) -> bool:
        """Whether this process is a spare."""
        return self.me in self.waiting

    def split(self) -> MPI.Intracomm:
        """Return the communicator of the seats, for a spare that of itself alone. Collective over all processes."""
        color, key = (1 + self.me.number, 0) if self.is_waiting else (0, self.seats.index(self.me))
        return cast("MPI.Intracomm", self.comm.Split(color, key))

    # The spares' waiting.

    def begin(self) -> None:
        """Let the spares prepare themselves, once the seats have. Called by one seat, not collective."""
        for one in self.waiting:
            with ignoring_loss():
                self.comm.Ssend(bytearray(), self.members.index(one))

    def wait_for_begin(self) -> bool:
        """Wait for a seat's `begin`; return False if the seats have ended before. Called by a spare."""
        begun: list[bool] = []

        def has_begun() -> bool:
            begun.append(any(map(self._has_begun, self.seats)))
            return begun[-1]

        self.wait(has_begun)
        return any(begun)  # also where a rank is lost just after

    def _has_begun(self, seat: JobProcess) -> bool:
        place, has_begun = self.members.index(seat), False
        with ignoring_loss():
            if has_begun := self.comm.Iprobe(place):
                self.comm.Recv(bytearray(), place)
        return has_begun

    def wait(self, until: Callable[[], bool] = lambda: False) -> None:
        """Wait until this spare is needed or dismissed. Called by a spare, which all others then await in `regroup`.

        Raise RanksLostError if no seat is left. If the launcher has ended, end this process.
        """
        from mpi4py import MPI

        launcher = os.getppid()
        while not self.comm.Is_revoked() and not until():
            if self._has_lost_all():
                raise RanksLostError("all ranks but the spares are lost, and the training's state with them")
            if os.getppid() != launcher:
                os._exit(1)
            MPI.COMM_SELF.Iprobe()  # MPI progresses within its calls alone
            time.sleep(PAUSE)

    def _has_lost_all(self) -> bool:
        """Return whether all seats' processes have ended."""
        ended = self.ended()
        return all(one in ended for one in self.seats)

    def ended(self) -> list[JobProcess]:
        """Return the members that MPI knows, in this process, to have ended. Not collective."""
        comm, members = self.comm, self.members
        failed = comm.Get_failed()
        return [members[place] for place in failed.Translate_ranks([*range(failed.size)], comm.group)]

    # Changes.

    def revoke(self) -> None:
        """Call the spares, and all others, to `regroup`. Not collective."""
        with ignoring_loss():
            self.comm.Revoke()

    def regroup(self, code: int | None = None) -> tuple[MPI.Intracomm, Regrouped, int | None]:
        """Go on without lost processes, spares in their seats; return `split`'s communicator and what has changed.

        The seats that end pass their exit `code`, which is returned to all processes; then none goes on. It has the bit
        FINALIZES where they end by MPI_Finalize, which waits for all. Each process has no message in flight. Collective
        over all that are left, once `comm` is revoked.
        """
        mine, changed = SPLIT | (GOES_ON | FINALIZES | CODE if code is None else code), Regrouped([], [], [])
        while True:
            self._take_left(cast("MPI.Intracomm", self.comm.Shrink()), changed)
            comm = None
            with ignoring_loss():
                comm = self.split()
            if comm is None:
                self.comm.Revoke()  # ends the others' waits in Split
            agreed = 0
            with ignoring_loss():
                agreed = self.comm.Agree(mine if comm is not None else mine & ~SPLIT)
            if comm is not None and agreed & SPLIT:
                self.new = [one for one, _ in changed.joined if one in self.seats]
                return comm, changed, None if agreed & GOES_ON else agreed & (FINALIZES | CODE)

    def _take_left(self, comm: MPI.Intracomm, changed: Regrouped) -> None:
        """Take a communicator of the processes that are left."""
        places = self.comm.group.Translate_ranks([*range(self.comm.size)], comm.group)
        left = [one for one, place in zip(self.members, places, strict=True) if place >= 0]
        self.comm, self.members = comm, left
        changed.ended.extend(one for one in self.waiting if one not in left)
        self.waiting = [one for one in self.waiting if one in left]
        lost = [(seat, one) for seat, one in enumerate(self.seats) if one not in left]
        self.is_cut_off |= is_cut_off([one.host for one in self.seats], [seat for seat, _ in lost])
        changed.lost.extend(one for _, one in lost)
        changed.joined.extend(self._fill(lost))
        self.seats = [one for one in self.seats if one in left]

    def _fill(self, lost: Sequence[tuple[int, JobProcess]]) -> list[tuple[JobProcess, JobProcess]]:
        """Give lost members' seats to spares, first on their own hosts, then on any; return spares and members."""
        joined = []
        for on_host in (True, False):
            for seat, one in lost:
                found = [spare for spare in self.waiting if not on_host or spare.host == one.host]
                if self.seats[seat] == one and found:
                    self.seats[seat] = found[0]
                    self.waiting.remove(found[0])
                    joined.append((found[0], one))
        return joined

    def dismiss(self, code: int) -> list[JobProcess]:
        """End the spares with this exit code; return those that had ended before. Collective over the seats."""
        self.revoke()
        return self.regroup(code)[1].ended
