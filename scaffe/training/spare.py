"""SpareSolver: what a spare's solver does in place of training: it waits, and takes a lost rank's place."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar, cast

from collectives import RankLostError
from scaffe.choices import Choices
from scaffe.errors import RanksLostError, ScaffeError
from scaffe.files.states import Origin
from scaffe.parallel.reserve import LostRank
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.training import display
from scaffe.training.recovering_solver import RecoveringSolver
from scaffe.training.solver_callbacks import SolverCallbacks

T = TypeVar("T")


class Briefing(NamedTuple):
    """What all ranks of a run have alike, and a spare has not.

    - `seed`, `origin`, `choices`: the solver's.
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


class SpareSolver(RecoveringSolver):
    """The part of a solver that waits in a spare, and then takes the place of a lost rank.

    A spare builds its solver as that of a single rank, so that it lacks no collective of the others' set-up. When a
    rank is lost it takes part in the others' recovery, where it builds all parts anew and takes over their state. Then
    it goes through `solve` without doing anything, up to the part that was broken off, and does that with the others.
    """

    callbacks: SolverCallbacks
    shown: display.Shown
    _part = ""
    _found_lost: list[LostRank] | None = None  # by a spare, as it took a place

    def _set_aside(self) -> None:
        """Make spares of the launch's last ranks, unless there are some. Collective."""
        self.world.together(lambda: check_spares(self.world, self.run))
        if self.world.spares is None:
            self.world.set_aside(self.run.spares)

    def _stand_by(self) -> None:
        """Let spares take lost ranks' places from now on. A spare waits until then, or ends with the other ranks."""
        self.world.recruits = True
        if self.world.is_spare:
            self._mark()
            self.done, self._is_whole = -1, True
            self.joined = self._has_all = self._is_acting = False
            self._found_lost = self.world.stand_by()
            self._join()
        if self.world.spares is not None:
            self._lasting(self._fill_places)

    def _fill_places(self) -> None:
        """Let spares take places that were lost before now. Collective."""
        if self.world.has_empty_places:
            self._fills = True
            raise RankLostError("spares take lost ranks' places")  # as where one is lost now

    def _join(self) -> None:
        """Recover with the other ranks, in a lost rank's place. Collective."""
        for workflow in self.trial.workflows:
            workflow.break_off()
        self.asked()  # what was requested before concerned the others
        self.budget = None
        if not self.compute.threads:
            self.world.share_cores()
        self._is_lasting = True  # as on the other ranks, which recover within a part
        self._recover()
        self._is_lasting = False
        self.joined = self._is_skipping = True
        self.shown = display.Shown(self.iter, time.monotonic())
        self.monitor.go_on(self)

    def _leave_lost(self) -> list[LostRank]:
        """End all waits, and return the ranks that the World goes on without; at first, those that a spare knows."""
        found, self._found_lost = self._found_lost, None
        return super()._leave_lost() if found is None else found

    def _lasting(self, part: Callable[[], T]) -> T:
        """Return `part()`, see RecoveringSolver; nothing where a spare skips it, since the others have done it."""
        if self._is_lasting:
            return part()
        name = part.__qualname__
        if self._is_skipping:
            if name != self._part:
                return cast(T, None)
            self._is_skipping = False
            if self._finished:
                return cast(T, self._result)
        self._part = name
        return super()._lasting(part)

    def _brief(self) -> None:
        """Give spares that have taken places what the other ranks have alike. Collective."""
        world = self.world
        if world.spares is None:
            return
        joined = world.allgather(self.joined)
        if not any(joined):
            raise RanksLostError("all ranks are lost but spares that have taken places, which have no state yet")
        source = joined.index(True)
        mine = Briefing(self.seed, self.origin, self.choices, self._part, self._false_alarms)
        briefing = cast(Briefing, world.bcast(mine if world.rank == source else None, source))
        if not self.joined:
            self.seed, self.origin, self.choices, self._part, self._false_alarms = briefing
