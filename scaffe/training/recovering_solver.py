"""RecoveringSolver: a solver whose ranks go on when one is lost (--on-rank-loss shrink).

A lost process shows as an error in any call of MPI, on some ranks before others, and they may be an iteration apart.
So the ranks that are left

1. revoke all communicators, which ends the other ranks' waits with the same error, and wait for their own messages;
2. shrink the World, and agree on the rank whose state counts: the root, or under allreduce the one that is furthest;
3. build nets, collectives and workflows anew for their number, as for other instances, and go on from that state.

The updates and statistics of an iteration that was broken off are put back. Statistics are averaged before its updates,
so that after the last update nothing is left that can break it off.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from collectives.loss import is_loss
from scaffe.compute import Compute
from scaffe.engine import Loss
from scaffe.errors import LaunchError, RanksLostError, ScaffeError
from scaffe.files import snapshot
from scaffe.monitor.log import log
from scaffe.packed import aligned_zeros
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.instances.team import Team
from scaffe.parallel.iteration import Averages
from scaffe.parallel.mpi_library import can_shrink
from scaffe.parallel.reserve import LostRank
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.training.carried import Carried
from scaffe.training.saved_solver import SavedSolver
from scaffe.training.snapshot_writer import SnapshotBudget
from scaffe.training.written import Written


class State(NamedTuple):
    """How far a rank has come.

    - `done`: iterations whose updates it has applied; `acted`: those after which what is due was done.
    - `tested`: the last iteration before which the test nets were run; `tests_done`: how often.
    - `losses`: the last losses; `wishes`: requests of any rank that are not yet granted, or not all the way.
    - `has_state`: whether it has the parameters and the history of `done` iterations.
    """

    done: int
    acted: int
    tested: int
    tests_done: int
    losses: tuple[float, ...]
    wishes: frozenset[str]
    has_state: bool


class Mark(NamedTuple):
    """A rank at the begin of an iteration: its data layers' positions, and its statistics."""

    iter: int
    samples: list[int]
    batch_number: int
    statistics: np.ndarray


def check_shrink(world: World, run: Run, instances: Instances, compute: Compute) -> None:
    """Raise ScaffeError, or LaunchError, where the ranks that are left could not go on."""
    if not run.shrinks:
        return
    if not can_shrink():
        raise LaunchError(
            "--on-rank-loss shrink: this job ends with any of its ranks; start it with jobs/mpirun.sh --ft"
        )
    for wrong, what in (
        (world.gpu is not None, "ranks that compute on GPUs"),
        (instances.n != "1", f"--instances {instances.n}"),
        (bool(compute.profile), "a profile that is replayed"),
    ):
        if wrong:
            raise ScaffeError(f"--on-rank-loss shrink does not work with {what}; use --on-rank-loss stop")


class Averaged:
    """Statistics that are averaged already."""

    def average(self) -> None:
        """Do nothing."""


class RecoveringSolver(SavedSolver):
    """The part of a solver that goes on without lost ranks.

    `done`, `acted` and `tested` are those of State, `granting` wishes that are being granted; `mark` is None outside of
    training. `joined` is False for a spare that has not taken over a lost rank's place and the others' state.
    """

    done = acted = 0
    tested = -1
    written: Written
    granting: set[str] = set()  # noqa: RUF012  never changed in place
    mark: Mark | None = None
    joined = True
    _is_whole = True
    _root_lost = False

    def _begin_marks(self) -> None:
        """Note that a step begins."""
        self.done = self.acted = self.iter
        self.tested, self.granting = -1, set()
        self._mark()

    def _mark(self) -> None:
        """Note where this iteration begins."""
        if not self.run.shrinks:
            return
        samples = [layer.position for layer in self.net.data_layers()]
        self.mark = Mark(self.iter, samples, self.net.context.batch_number, self.statistics.values.copy())
        self._is_whole = False
        if self.undo:
            self.undo.begin()

    def _whole(self, agree: Callable[[Loss], object]) -> tuple[Averages, int, Callable[[Loss], None]]:
        """Return statistics, passes and agreement of an iteration; where it must be whole, statistics come first."""

        def agree_and_average(loss: Loss) -> None:
            agree(loss)
            if self.run.shrinks:
                self.statistics.average()

        return (Averaged() if self.run.shrinks else self.statistics), self.param.iter_size, agree_and_average

    def _note_done(self) -> None:
        """Note that this iteration's updates are applied."""
        self.done, self._is_whole = self.iter + 1, True

    def _can_recover(self, error: Exception) -> bool:
        """Return whether this error says that a rank is lost, and the run goes on without it."""
        return self.run.shrinks and is_loss(error) and self.mark is not None

    def _recover(self) -> None:
        """Go on without the ranks that are lost.

        A rank that is lost meanwhile makes the others begin again. Collective over the ranks that are left.
        """
        start = time.perf_counter()
        while True:
            self._break_off()
            lost = self.world.shrink()
            if not lost:  # then going on would not end
                raise RanksLostError("MPI reported a lost rank, but none is lost")
            try:
                self._go_on(lost)
            except Exception as another:
                if self.closed or not is_loss(another):  # nothing is built to go on from
                    raise
                continue
            self._log_recovery(start)
            return

    def _log_recovery(self, start: float) -> None:
        """Log how many ranks go on, and the time since `start`, in seconds."""
        if self.world.is_root:
            text = "%d rank(s) are left; they go on at iteration %d after %.3g s"
            log.warning(text, self.world.size, self.iter, time.perf_counter() - start)

    def _brief(self) -> None:
        """Give spares that have taken places what the other ranks have alike. Collective."""

    def _break_off(self) -> None:
        """End all waits of all ranks, and this rank's messages in flight. Not collective."""
        self.world.revoke()
        if self.collectives is not None:
            self.collectives.revoke()
        for workflow in self.trial.workflows:
            workflow.break_off()

    def _go_on(self, lost: list[LostRank]) -> None:
        """Agree on the state that counts, and build everything anew for the ranks that are left. Collective."""
        world, run = self.world, self.run
        if world.spares is not None:
            self._brief()
        if world.is_root:
            log.warning("Lost %s, in or after iteration %d", ", ".join(map(str, lost)), self.iter)
        if world.size < run.min_ranks:
            raise RanksLostError(f"{world.size} rank(s) are left, fewer than --min-ranks {run.min_ranks}")
        self._root_lost |= any(one.rank == world.root for one in lost)
        source, state = self._decide()
        carried = self._carry(state)
        carried.share(world, source)
        assert self.mark is not None
        self.mark = self.mark._replace(samples=carried.samples, batch_number=carried.batch_number)
        self.done = state.done  # not before: another loss may have broken the broadcasts off
        self._abandon()
        self.closed = True  # until all is built
        self.team = Team(world, self.auto_instances.present)
        self._build()
        self.closed = False
        self.written.forget()
        carried.give(self)
        self._plan()
        if self._root_lost:
            self._take_over(state.has_state)
            self._root_lost = False
        self.propagate.changed()
        self.propagate.sync()
        self.joined = True
        if run.scaling == "weak" and world.is_root and not world.is_whole:
            text = "The global batch is now %d sample(s); the learning rate stays as given, %g"
            log.warning(text, self.net.context.total_rows, self.rate())

    def _decide(self) -> tuple[int, State]:
        """Return the rank whose state counts, and what all ranks take over from it. Collective."""
        everywhere = self.propagate.everywhere
        mine = State(
            self.done, self.acted, self.tested, self.tests_done, tuple(self.losses.last),
            frozenset(self.losses.wishes | self.granting),
            self.joined and (everywhere or (self.world.is_root and not self._root_lost)),
        )  # fmt: skip
        states = self.world.allgather(mine)
        source = max(range(len(states)), key=lambda rank: (states[rank].has_state, states[rank].done, -rank))
        return source, states[source]._replace(wishes=frozenset().union(*(one.wishes for one in states)))

    def _carry(self, state: State) -> Carried:
        """Return what the new nets take over, this rank's part at the state's iteration."""
        mark = self.mark
        assert mark is not None
        if not self._is_whole:
            self.statistics.values[...] = mark.statistics
            if self.undo:
                self.undo.undo()
        self.iter = state.done
        self.acted, self.tested, self.tests_done = state.acted, state.tested, state.tests_done
        self.losses.last = deque(state.losses, self.param.average_loss)
        self.losses.wishes = set(state.wishes)
        if state.wishes & {"requeue", "stop"}:
            self.acted = -1  # stop now
        carried, passes = Carried(self), (state.done - mark.iter) * self.param.iter_size
        layers = zip(mark.samples, self.net.data_layers(), strict=True)
        samples = [sample + passes * layer.samples_per_batch for sample, layer in layers]
        carried.move(samples, mark.batch_number + passes)
        self.mark = Mark(self.iter, samples, mark.batch_number + passes, mark.statistics)
        self._is_whole = True
        return carried

    def _abandon(self) -> None:
        """End all threads, and give up all communicators. Not collective."""
        self._end_readers()
        self.snapshots.writer.join()
        self.team.close()
        self.net.context.allsums = self.world.allsums
        self.net.packed.pinned = False
        if self.watch is not None:
            self.watch.abandon()
        if self.collectives is not None:
            self.collectives.abandon(windows=not self.net.move_parameters(aligned_zeros))

    def _take_over(self, has_state: bool) -> None:
        """Make rank 0 do what the lost root did; without the solver's state go back to a snapshot. Collective."""
        self._keeps_prefix = self._writes_snapshot = False
        self._keep_prefix()
        if self.run.snapshot_budget and self.world.is_root:
            self.budget = SnapshotBudget(self.run.snapshot_budget)
        if self.world.is_root and (self.watching.tensorboard or self.watching.metrics):
            log.warning("The root is lost: no more numbers are written for TensorBoard and Prometheus")
        if has_state:
            return
        prefix = self.param.snapshot_prefix
        if not self.world.on_root(lambda: snapshot.newest(prefix)):
            raise RanksLostError(f"the root and its solver's history are lost; there is no snapshot of {prefix}")
        self.restore("auto")
        self.done = self.acted = self.iter
        self.tested = -1
        self.losses.last.clear()
        self._mark()
