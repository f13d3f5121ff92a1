"""SpareSolver: what a spare's solver does in place of training: it waits, and takes a lost rank's place."""

from __future__ import annotations

import time
from typing import NamedTuple

from collectives.loss import is_loss
from scaffe.choices import Choices
from scaffe.errors import RanksLostError, ScaffeError
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.training import display
from scaffe.training.recovering_solver import RecoveringSolver
from scaffe.training.settings import Settings
from scaffe.training.solver_callbacks import CalledFunctions, SolverCallbacks


class Briefing(NamedTuple):
    """What all ranks of a run have alike, and a spare has not: where the run ends, and what its root has begun.

    - `seed`, `choices`: the solver's. `last`: the iteration before which training ends.
    - `root_lost`, `keeps_prefix`, `writes_snapshot`: the solver's attributes of these names.
    - `calls`: whether any rank has added functions.
    """

    seed: int
    choices: Choices
    last: int
    root_lost: bool
    keeps_prefix: bool
    writes_snapshot: bool
    calls: bool


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

    A spare builds its solver as a single rank's, so that it lacks no collective of the others' set-up. When a rank is
    lost it takes part in their recovery, where it builds the solver anew, and takes over their state. `last` is the
    iteration before which training ends.
    """

    last = 0
    callbacks: SolverCallbacks
    settings: Settings
    shown: display.Shown

    def _join(self) -> None:
        """Wait until this spare takes a lost rank's place, and go on with the others; if these end, end with them."""
        self._mark()
        self.done, self._is_whole, self.joined = -1, True, False
        lost = self.world.stand_by()
        start = time.perf_counter()
        for workflow in self.trial.workflows:
            workflow.break_off()
        self.asked()  # what was requested before concerned the others
        self.budget = None
        if not self.compute.threads:
            self.world.share_cores()
        try:
            self._go_on(lost)
            self._log_recovery(start)
        except Exception as another:
            if self.closed or not is_loss(another):
                raise
            self._recover()
        self.shown = display.Shown(self.iter, time.monotonic())
        self.monitor.go_on(self)

    def _brief(self) -> None:
        """Give spares that have taken places what the other ranks have alike. Collective."""
        joined = self.world.allgather(self.joined)
        if all(joined):
            return
        if not any(joined):
            raise RanksLostError("all ranks are lost but the spares that have taken places, which have no state yet")
        source = joined.index(True)
        briefing = Briefing(
            self.seed, self.choices, self.last, self._root_lost, self._keeps_prefix, self._writes_snapshot,
            self.called is not None,
        )  # fmt: skip
        briefing = self.world.comm.bcast(briefing if self.world.rank == source else None, source)
        if self.joined:
            return
        self.seed, self.choices, self.last = briefing.seed, briefing.choices, briefing.last
        self._root_lost, self._keeps_prefix = briefing.root_lost, briefing.keeps_prefix
        self._writes_snapshot = briefing.writes_snapshot
        self.called = CalledFunctions(self) if briefing.calls else None
