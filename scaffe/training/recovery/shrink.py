"""Shrink: the ranks that are left go on when one is lost (--on-rank-loss shrink).

A lost process shows as an error in any call of MPI, on some ranks before others. So a job consists of parts that can be
done again: its set-up, a restore, the iterations, a test. At the end of a part all ranks agree on whether all have done
it (World.attempt). If not, the ranks that are left

1. revoke all communicators, which ends the other ranks' waits with the same error, and wait for their own messages;
2. shrink the World, and agree on the rank whose state counts: the root, or under allreduce the one that is furthest;
3. build nets, collectives and workflows anew for their number, as for other instances;
4. do the part again from that state, unless that rank had done it.

1 to 3 are attempted until no rank is lost meanwhile. The updates and statistics of an iteration that was broken off are
put back. Statistics are averaged before its updates, so that after the last update nothing is left that can break it
off. For the same reason the loss and outputs that a display or measurement needs are summed before: it may follow a
recovery.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeVar, cast

import numpy as np

from scaffe.engine import Loss
from scaffe.errors import RanksLostError
from scaffe.files.states import iteration
from scaffe.monitor.log import log
from scaffe.monitor.record import RANKS, RECOVERY
from scaffe.parallel.iteration import Averages
from scaffe.parallel.mpi_library import can_shrink
from scaffe.parallel.owners import ROOT
from scaffe.parallel.reserve import LostRank
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.training import display
from scaffe.training.checkpoints import Checkpoints
from scaffe.training.job import Job
from scaffe.training.monitor import Unwatched
from scaffe.training.parts import Parts
from scaffe.training.recovery.phase import Phase
from scaffe.training.recovery.ranks_left import FalseAlarms, check_left
from scaffe.training.recovery.rollback import Rollback
from scaffe.training.recovery.state import Mark, Outcome, State, agreed, furthest, on_its_way
from scaffe.training.solver_callbacks import CalledFunctions
from scaffe.training.state_transfer import StateTransfer

T = TypeVar("T")


class Averaged:
    """Statistics that are averaged already."""

    def average(self) -> None:
        """Do nothing."""


class Shrink:
    """A recovery that goes on with the ranks that are left; see Stop for the methods that a solver calls.

    - `phase`: what this rank is at. `rollback`: what the iteration that is under way has changed.
    - `has_all`: whether all ranks have the parameters and the history.
    - `was_root`: whether this rank was the root before a recovery renumbered the ranks.
    - `was_set_back`: whether the lost root's state is replaced by that of a mirror or snapshot.
    """

    job: Job
    parts: Parts
    checkpoints: Checkpoints
    monitor: Unwatched
    rollback: Rollback
    phase = Phase.SET_UP
    has_all = was_root = was_set_back = False
    _outcome: Outcome | None = None
    _kept: tuple[StateTransfer, State] | None = None  # during a recovery: what all new nets take over
    _has_parts = False
    _fills = False  # whether the ranks recover for spares to take places, without another loss

    def __init__(self, world: World, run: Run):
        self.world, self.run = world, run
        self._false_alarms = FalseAlarms()

    # The begin and the end.

    def begin(self) -> None:
        """Prepare the ranks that set up together: they are there."""

    def set_up(self, work: Callable[[], None]) -> None:
        """Set up by `work()`. If a rank is lost meanwhile, those that are left begin again. Collective."""
        if can_shrink():
            self._again(work, self._begin_again, Phase.SET_UP)
            self.has_all, self.was_root = True, self.world.is_root  # by the seed
        else:
            work()  # which refuses that
        with self.world.record.waiting(RANKS):
            self.world.start_spares()

    def follow(self, job: Job, parts: Parts, checkpoints: Checkpoints, monitor: Unwatched) -> None:
        """Take the parts of a solver, which are to be built."""
        self.job, self.parts, self.checkpoints, self.monitor = job, parts, checkpoints, monitor
        self._has_parts = True
        self.rollback = Rollback(job, parts)

    def begin_solve(self) -> None:
        """Let spares take lost ranks' places from now on: there are none."""

    def end_solve(self) -> None:
        """Note that the training has ended."""

    def end(self, work: Callable[[], object]) -> None:
        """Do a part of the end. If a rank is lost meanwhile, nothing is built for those that are left. Collective."""
        self._again(work, self._give_up, Phase.PART)

    def free(self) -> None:
        """Free what is not given up. Collective."""
        self.end(lambda: None if self.phase is Phase.GIVEN_UP else self.parts.free())

    # Parts that are done again.

    @property
    def is_skipping(self) -> bool:
        """Whether this rank, a spare before, goes to the part of the job that the others do again."""
        return self.phase is Phase.SKIPPING

    def part(self, name: str, work: Callable[[], T]) -> T:
        """Return `work()`. If a rank is lost meanwhile, those that are left recover, and do it again. Collective."""
        if self.phase is not Phase.BETWEEN:
            return work()

        def whole() -> T:
            result = work()
            self.rollback.settle()
            return result

        self.rollback.settle()
        return self._again(whole, self._recover, Phase.PART)

    def _again(self, work: Callable[[], T], recover: Callable[[], object], phase: Phase) -> T:
        """Return `work()`, done again, each time after `recover()`, until no rank is lost. Collective."""
        result: list[T] = []

        def once() -> None:
            self._outcome = None
            result[:] = [work()]
            self._outcome = None if self.world.misses_any() else Outcome(result[0])

        self.phase = phase if self.phase is not Phase.GIVEN_UP else self.phase
        try:
            while not self.world.attempt(once, self.break_off):
                recover()
                if self._outcome:
                    result[:] = [cast(T, self._outcome.result)]
                    break
            return result[0]
        finally:
            if self.phase is not Phase.GIVEN_UP:
                self.phase = Phase.BETWEEN

    # Iterations.

    def begin_iteration(self) -> None:
        """Note that this iteration begins, which changes parameters."""
        self.rollback.begin_iteration(self.has_all)
        if self.parts.mirror:
            self.parts.mirror.feed(self.job.iter, (self.state(), self.rollback.mark), self.has_all)

    def called_functions(self) -> None:
        """Note that users' functions were called, which may have restored a snapshot."""
        if self.rollback.mark.iter != self.job.iter:
            self.begin_iteration()

    def whole(self, agree: Callable[[Loss], None]) -> tuple[Averages, Callable[[Loss], None]]:
        """Return statistics and agreement of an iteration, which must be whole: statistics come first."""

        def agree_and_average(loss: Loss) -> None:
            agree(loss)
            self.parts.statistics.average()
            if self.tells_at_once:
                found = display.train_outputs(self.world, self.parts.nets)
                self.job.outputs = {name: values.copy() for name, values in found.items()}

        return Averaged(), agree_and_average

    @property
    def is_shared(self) -> bool:
        """Whether each rank has the history of what it owns alone, so that a lost rank's is on no other."""
        return self.run.owners != ROOT

    @property
    def tells_at_once(self) -> bool:
        """Whether this iteration is displayed or measured, maybe by other nets: after a recovery."""
        return self.job.is_display_due(self.job.iter) or self.monitor.is_due(self.job.iter)

    def outputs(self) -> Mapping[str, np.ndarray]:
        """Return the train net's outputs of the iteration that was done last, as they were then."""
        return self.job.outputs

    def end_iteration(self) -> None:
        """Note that this iteration's updates are applied. Raise RankLostError as Parts.check_sums does."""
        self.rollback.end_iteration()
        self.has_all = False

    # What all ranks have.

    def note_changed(self) -> None:
        """Note that parameters were changed on the root alone."""
        self.has_all = False

    def note_restored(self) -> None:
        """Note that all ranks have the parameters and the history."""
        self.has_all = not self.is_shared

    def replace(self, transfer: StateTransfer) -> None:
        """Build new nets for other instances. If a rank is lost meanwhile, `transfer` has all that they take over.

        All ranks get the root's history before: a mirror or snapshot would not go with what is handed on.
        """
        transfer.share(self.world, self.world.root, self.run.collective == "allreduce" or self.has_all)
        self.has_all = True
        self._kept = transfer, self.state()
        self.parts.replace(transfer)
        self._kept = None

    # Recovery.

    def break_off(self) -> None:
        """End all waits of all ranks, and this rank's messages and its work on a GPU. Not collective."""
        self.world.revoke()
        if self._has_parts:
            self.parts.break_off()
        if self.world.gpu is not None:
            self.world.gpu.finish()

    def _leave_lost(self) -> list[LostRank]:
        """End all waits, and return the ranks that the World goes on without. Collective."""
        self.break_off()
        return self.world.shrink()

    def _brief(self) -> None:
        """Give spares that have taken places what the other ranks have alike: there are none."""

    def _shrink(self) -> list[LostRank]:
        """Go on with the ranks that are left; return those that are not. Collective."""
        world, watch = self.world, self.parts.watch if self._has_parts else None
        when = "in set-up" if self.phase is Phase.SET_UP else f"in or after iteration {self.job.iter}"
        world.record.at(RECOVERY)
        lost = self._leave_lost()
        world.end_lost(lost)
        if not lost and not self._fills:
            self._false_alarms.check(world)
        if world.reports_losses:
            for one in lost:
                log.warning("Lost %s, %s%s", one, when, watch.last_of(one.first) if watch else "")
        check_left(world, self.run)
        return lost

    def _begin_again(self) -> None:
        """Give up what the set-up has built. Collective over the ranks that are left."""
        self._shrink()
        if self.world.is_root:
            log.warning("Ranks left: %d; they set up again", self.world.size)
        if self._has_parts:
            self.parts.abandon()
            self.monitor.close()
        self._outcome = None  # where it had ended, all of it is given up

    def _give_up(self) -> None:
        """Give up what the end has not freed. Collective over the ranks that are left."""
        self._shrink()
        self._outcome = None  # other ranks do the part again, and wait for this one
        trial = self.parts.trial
        self.parts.abandon()
        if self.parts.watch is not None:
            self.parts.watch.abandon()
        self.parts.trial, self.phase = trial, Phase.GIVEN_UP  # whose sizes the timeline has

    def _recover(self) -> None:
        """Go on without the ranks that are lost. Collective over the ranks that are left."""
        start, before = time.perf_counter(), self.phase
        self.phase = Phase.JOINING if before is Phase.JOINING else Phase.RECOVERY
        while not self.world.attempt(self._go_on, self.break_off):
            pass
        self.parts.give_back()
        self._kept, self.was_root, self.phase = None, self.world.is_root, before
        self.has_all = not self.is_shared or self.job.iter == 0  # a history of zeros
        redone = self.rollback.begun - self.job.iter
        self.rollback.settle()
        if self.world.is_root:
            text = "Ranks left: %d; they go on at iteration %d after %.3g s; iterations redone: %d"
            log.warning(text, self.world.size, self.job.iter, time.perf_counter() - start, redone)

    def _go_on(self) -> None:
        """Agree on the state that counts, and build everything anew for the ranks that are left. Collective."""
        self._shrink()
        is_root_lost = not self.world.bcast(self.was_root)  # or a spare is the root now
        self._brief()
        mine = self._kept[1] if self._kept else self.state()
        source, state = self._decide(mine)
        transfer = self._kept[0] if self._kept else self._put_back(state)
        mirror = self.parts.mirror
        if state.set_back and not self._kept and self.world.rank == source and mirror and mirror.kept:
            transfer.take(*map(np.copy, mirror.kept.arrays))  # the rule keeps it; mirrors overwrite theirs
        if self.is_shared:
            transfer.drop_history()
        transfer.share(self.world, source, state.is_everywhere, mine.has_state)
        # Not before: another loss may have broken the broadcasts off.
        self._kept = transfer, state._replace(stale=False)
        self._take(state)
        self._rebuild(transfer, state)
        self.parts.propagate.known()
        if is_root_lost:
            self._take_over()
        if not state.has_state:
            self._go_back(is_root_lost)
        if is_root_lost:
            self.monitor.follow_root(self.parts)
        self.parts.propagate.sync()
        rows = self.parts.net.context.total_rows
        if rows and self.run.scaling == "weak" and self.world.is_root and not self.world.is_whole:
            text = "The global batch is now %d sample(s); the learning rate stays as given, %g"
            log.warning(text, rows * self.job.param.iter_size, self.job.rate())

    def state(self) -> State:
        """Return this rank's state."""
        job, parts, rollback = self.job, self.parts, self.rollback
        has_state = self.run.collective == "allreduce" or self.has_all or (self.was_root and not self.is_shared)
        kept = parts.mirror.kept if parts.mirror else None
        return State(
            done=rollback.done,
            handled=job.handled,
            told=job.told,
            tested=job.tested,
            tests_done=job.tests_done,
            losses=rollback.losses,
            outputs=job.outputs,
            requests=frozenset(parts.losses.requests | job.granted),
            begun=rollback.begun,
            stopped=job.stopped,
            calls=parts.called is not None,
            outcome=self._outcome,
            has_state=has_state and self.phase is not Phase.JOINING,
            mirrored=kept.about[0].done if kept else -1,
            stale=parts.propagate.stale,
            instances=job.auto_instances.settled,
        )

    def _decide(self, mine: State) -> tuple[int, State]:
        """Return the rank whose state counts, and what all ranks take over from it, by this one's. Collective."""
        states = self.world.allgather(mine)
        source = furthest(states)
        state = states[source]
        if not state.has_state:
            source, state = self._mirrored(states) or (source, state)
        return source, agreed(state, states)

    def _mirrored(self, states: list[State]) -> tuple[int, State] | None:
        """Return the rank that has the lost root's newest mirror, and that state; None where a snapshot is newer.

        The positions of all ranks are then those of the mirror. Collective.
        """
        source = max(range(len(states)), key=lambda rank: states[rank].mirrored)
        if (at := states[source].mirrored) < 0:
            return None
        newest = self.checkpoints.newest_own()
        if newest and at < iteration(newest) <= max(one.done for one in states):
            return None
        mirror = self.parts.mirror
        kept = mirror.kept if mirror else None
        sent = self.world.bcast(kept and on_its_way(*kept.about), source)
        state, self.rollback.mark = cast(tuple[State, Mark], sent)
        if self.world.is_root:
            log.warning("The root's mirror of iteration %d is taken", at)
        begun = max(one.begun for one in states)
        return source, state._replace(begun=begun, has_state=True, set_back=True)

    def _put_back(self, state: State) -> StateTransfer:
        """Put back what the iteration that was broken off has changed; return what new nets take over."""
        return self.rollback.put_back(state)

    def _take(self, state: State) -> None:
        """Take over from a state what does not belong to the nets."""
        job, parts = self.job, self.parts
        job.iter = self.rollback.done = state.done
        self.rollback.begun = state.begun
        job.handled, job.tested, job.stopped = state.handled, state.tested, state.stopped
        job.told, job.outputs = state.told, state.outputs
        self._outcome = state.outcome
        self.was_set_back |= state.set_back
        if state.requests & {"requeue", "stop"}:
            job.handled = -1  # stop now
        if state.calls and parts.called is None:
            parts.called = CalledFunctions(parts)

    def _rebuild(self, transfer: StateTransfer, state: State) -> None:
        """Build all parts for the ranks that are left. Collective."""
        job, parts = self.job, self.parts
        parts.snapshots.writer.join()
        parts.abandon(moves=False)
        job.auto_instances.go_on(state.instances)
        parts.rebuild(transfer)
        parts.written.forget()
        parts.losses.last = deque(state.losses, job.param.average_loss)
        granted = {state.stopped} if state.outcome else set()
        parts.losses.requests, job.granted = set(state.requests) - granted, frozenset()
        self.checkpoints.follow_ranks()
        parts.plan()

    def _take_over(self) -> None:
        """Make rank 0 do what the lost root did. Collective."""
        self.checkpoints.follow_root()

    def _go_back(self, is_root_lost: bool) -> None:
        """Go back to a snapshot, since no rank has the solver's state. Collective."""
        if not (newest := self.checkpoints.newest_own()):
            lost = "the root and its solver's history are" if is_root_lost else "a part of the solver's history is"
            prefix = self.job.param.snapshot_prefix
            raise RanksLostError(f"{lost} lost; there is no snapshot of {prefix} of this run")
        self.checkpoints.restore(newest)
        self.parts.statistics.spread()
        job = self.job
        job.handled = job.told = job.iter
        job.tested, self.was_set_back = -1, True
        self.parts.losses.last.clear()
