"""ShrinkWithSpares: spares take lost ranks' places (--spares K), and the ranks that are left go on with them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar, cast

from collectives import RankLostError
from scaffe.devices.choices import Choices
from scaffe.errors import RanksLostError, ScaffeError
from scaffe.files.states import Origin
from scaffe.monitor.record import RANKS
from scaffe.parallel.reserve import LostRank
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.training.display import Shown
from scaffe.training.recovery.phase import Phase
from scaffe.training.recovery.shrink import Shrink

T = TypeVar("T")


class Briefing(NamedTuple):
    """What all ranks of a run have alike, and a spare has not.

    - `seed`, `origin`, `choices`: the job's.
    - `part`: the name of the part of the job that was broken off.
    - `false_alarms`: the number of losses that MPI has reported though no rank was lost.
    """

    seed: int
    origin: Origin
    choices: Choices
    part: str
    false_alarms: int


def check_spares(world: World, run: Run) -> None:
    """Raise ScaffeError for spares that could take no place."""
    if run.spares and not run.shrinks:
        raise ScaffeError(f"--spares {run.spares}: spares need --on-rank-loss shrink; give both, or leave --spares out")
    if run.spares >= world.size and world.spares is None:
        raise ScaffeError(
            f"--spares {run.spares}: the launch has {world.size} rank(s), and one or more must train; start more ranks"
        )


class ShrinkWithSpares(Shrink):
    """A recovery in which spares take the places of lost ranks, as long as there are some.

    A spare builds its solver as that of a single rank, so that it lacks no collective of the others' set-up. When a
    rank is lost it takes part in the others' recovery, where it builds all parts anew and takes over their state. Then
    it goes through `solve` without doing anything, up to the part that was broken off, and does that with the others.
    """

    _name = ""  # of the part of the job that this rank does
    _found_lost: list[LostRank] | None = None  # by a spare, as it took a place

    def begin(self) -> None:
        """Make spares of the launch's last ranks, unless there are some. Collective."""
        self.world.together(lambda: check_spares(self.world, self.run))
        if self.world.spares is None:
            with self.world.record.waiting(RANKS):
                self.world.set_aside(self.run.spares)

    def begin_solve(self) -> None:
        """Let spares take lost ranks' places from now on. A spare waits until then, or ends with the other ranks."""
        self.world.fills_places = True
        if self.world.is_spare:
            self.rollback.note_place()
            self.rollback.done, self.rollback.is_whole = -1, True
            self.has_all = self.was_root = False
            self._found_lost = self.world.standby()
            self._join()
        self.part("fill places", self._fill_places)

    def end_solve(self) -> None:
        """Let no spare take a place from now on."""
        self.world.fills_places = False

    def _fill_places(self) -> None:
        """Let spares take places that were lost before now. Collective."""
        if self.world.has_empty_places:
            self._fills = True
            raise RankLostError("spares take lost ranks' places")  # as where one is lost now

    def _join(self) -> None:
        """Recover with the other ranks, in a lost rank's place. Collective."""
        for workflow in self.parts.trial.workflows:
            workflow.break_off()
        self.checkpoints.drop_requests()  # they concerned the others
        if not self.job.compute.threads:
            self.world.share_cores()
        self.phase = Phase.JOINING
        self._recover()
        self.phase = Phase.SKIPPING
        self.job.shown = Shown(self.job.iter, time.monotonic())
        self.monitor.go_on(self.parts)

    def part(self, name: str, work: Callable[[], T]) -> T:
        """Return `work()`, see Shrink; nothing where a spare skips it, since the others have done it."""
        if self.phase is Phase.SKIPPING:
            if name != self._name:
                return cast(T, None)
            self.phase = Phase.BETWEEN
            if self._outcome:
                return cast(T, self._outcome.result)
        if self.phase is Phase.BETWEEN:
            self._name = name
        return super().part(name, work)

    def _leave_lost(self) -> list[LostRank]:
        """End all waits, and return the ranks that the World goes on without; at first, those that a spare knows."""
        found, self._found_lost = self._found_lost, None
        return super()._leave_lost() if found is None else found

    def _shrink(self) -> list[LostRank]:
        """Go on with the ranks that are left, and with spares; return those that are not. Collective."""
        lost = super()._shrink()
        self._fills = False
        return lost

    def _brief(self) -> None:
        """Give spares that have taken places what the other ranks have alike. Collective."""
        world, job, has_joined = self.world, self.job, self.phase is not Phase.JOINING
        joined = world.allgather(has_joined)
        if not any(joined):
            raise RanksLostError("all ranks are lost but spares that have taken places, which have no state yet")
        source = joined.index(True)
        mine = Briefing(job.seed, job.origin, job.choices, self._name, self._false_alarms.count)
        briefing = cast(Briefing, world.bcast(mine if world.rank == source else None, source))
        if not has_joined:
            job.seed, job.origin, job.choices, self._name, self._false_alarms.count = briefing
