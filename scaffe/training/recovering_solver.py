"""RecoveringSolver: a solver whose ranks go on when one is lost (--on-rank-loss shrink).

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
from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np

from collectives import RankLostError
from scaffe.blob import on_host
from scaffe.engine import Loss
from scaffe.errors import RanksLostError
from scaffe.files.states import iteration
from scaffe.monitor.log import log
from scaffe.monitor.record import RECOVERY
from scaffe.parallel.instances.team import Team
from scaffe.parallel.iteration import Averages
from scaffe.parallel.mpi_library import can_shrink
from scaffe.parallel.reserve import LostRank
from scaffe.training import display
from scaffe.training.carried import Carried
from scaffe.training.rank_state import Mark, State, on_its_way
from scaffe.training.ranks_left import check_left
from scaffe.training.saved_solver import SavedSolver
from scaffe.training.settings import Settings
from scaffe.training.snapshot_writer import SnapshotBudget
from scaffe.training.solver_callbacks import CalledFunctions, SolverCallbacks
from scaffe.training.written import Written

T = TypeVar("T")
MOST_FALSE_ALARMS = 3  # that a run goes on after: Open MPI 5 reports some over TCP


class Averaged:
    """Statistics that are averaged already."""

    def average(self) -> None:
        """Do nothing."""


class RecoveringSolver(SavedSolver):
    """The part of a solver that goes on without lost ranks.

    - `done`, `begun`, `acted`, `told`, `outputs` and `tested` are those of State.
    - `granting`: wishes that are being granted.
    - `mark`: where the iteration, or another part of the job, began.
    - `joined`: False for a spare that takes a place, but has not taken over the others' state.
    - `was_set_back`: whether the lost root's state is replaced by that of a mirror or snapshot.
    """

    done = begun = acted = told = 0
    outputs: dict[str, np.ndarray] = {}  # noqa: RUF012  never changed in place
    tested = -1
    callbacks: SolverCallbacks
    stopped: str
    written: Written
    granting: set[str] = set()  # noqa: RUF012  never changed in place
    mark: Mark
    settings: Settings
    was_set_back = False
    _finished = False
    _result: object = None
    joined = True
    _is_skipping = False
    _is_lasting = False  # within a part that is done again
    _is_whole = True
    _is_set_up = False
    _begin_values: np.ndarray | None = None  # of an iteration that all ranks begin with the history
    _is_acting = False  # whether it is the root; during a recovery, whether it was before that renumbered the ranks
    _root_lost = _gave_up = False
    _false_alarms = 0
    _fills = False  # whether the ranks recover for spares to take places, without another loss
    _kept: tuple[Carried, State] | None = None  # during a recovery: what all new nets take over

    # Parts that are done again.

    def _lasting(self, part: Callable[[], T]) -> T:
        """Return `part()`. If a rank is lost meanwhile, those that are left recover, and do it again. Collective."""
        if not self.run.shrinks or self._is_lasting:
            return part()

        def whole() -> T:
            result = part()
            self._settle()
            return result

        self._settle()
        return self._again(whole, self._recover)

    def _settle(self) -> None:
        """Note that what is done up to here stays."""
        self.done = self.begun = self.iter
        self._mark()

    def _set_up_lasting(self, part: Callable[[], None]) -> None:
        """Set up. If a rank is lost meanwhile, those that are left begin again. Collective."""
        if not can_shrink():
            return part()  # which refuses that
        self._again(part, self._begin_again)
        self._is_set_up = self._has_all = True  # by the seed
        self._is_acting = self.world.is_root

    def _end_lasting(self, part: Callable[[], object]) -> None:
        """Do a part of the end. If a rank is lost meanwhile, nothing is built for those that are left. Collective."""
        if self.run.shrinks:
            self._again(part, self._give_up)
        else:
            part()

    def _free_lasting(self) -> None:
        """Free what is not given up. Collective."""
        self._end_lasting(lambda: None if self._gave_up else self._free())

    def _again(self, part: Callable[[], T], recover: Callable[[], object]) -> T:
        """Return `part()`, done again, each time after `recover()`, until no rank is lost. Collective."""

        def once() -> None:
            self._finished, self._result = False, None
            self._result = part()
            self._finished = not self.world.misses_any()

        self._is_lasting = True
        try:
            while not self.world.attempt(once, self._break_off):
                recover()
                if self._finished:
                    break
            return cast(T, self._result)
        finally:
            self._is_lasting, self._result = False, None

    # Iterations.

    def _mark(self) -> None:
        """Note where this iteration, or another part of the job, begins."""
        if not self.run.shrinks:
            return
        samples = [layer.position for layer in self.net.data_layers()]
        values, losses = self.statistics.values.copy(), tuple(self.losses.last)
        self.mark = Mark(self.iter, samples, self.net.context.batch_number, values, losses)
        self._is_whole = False
        if self.undo:
            self.undo.begin()

    def _note_begun(self) -> None:
        """Note that this iteration begins, which changes parameters."""
        self._mark()
        self.begun = self.iter + 1
        if self.undo and self.called is not None:
            self.undo.keep_all()
        if self.run.shrinks and self._has_all and self._receives:
            self._begin_values = on_host(self.net.packed.flat).copy()
        if self.mirror:
            self.mirror.feed(self.iter, (self._state(), self.mark), self._has_all)

    @property
    def _receives(self) -> bool:
        """Whether this iteration's messages may replace parameters by other values, the root's."""
        down, changes = self.propagate, self.workflow.early or self.called is not None
        return (changes or down.stale or down.rounded is not None) and not down.everywhere

    def _whole(self, agree: Callable[[Loss], object]) -> tuple[Averages, int, Callable[[Loss], None]]:
        """Return statistics, passes and agreement of an iteration; where it must be whole, statistics come first."""

        def agree_and_average(loss: Loss) -> None:
            agree(loss)
            if self.run.shrinks:
                self.statistics.average()
            if self._tells_later():
                found = display.train_outputs(self.world, self.nets)
                self.outputs = {name: values.copy() for name, values in found.items()}

        return (Averaged() if self.run.shrinks else self.statistics), self.param.iter_size, agree_and_average

    def _tells_later(self) -> bool:
        """Return whether this iteration is displayed or measured, maybe by other nets: after a recovery."""
        return self.run.shrinks and (self._is_display_due(self.iter) or self.monitor.is_due(self.iter))

    def _note_done(self) -> None:
        """Note that this iteration's updates are applied. Raise RankLostError as `_check_sums` does."""
        if self.workflow.early:
            self._check_sums()
        self.done, self._is_whole = self.iter + 1, True
        self._has_all, self._begin_values = False, None

    def _check_sums(self) -> None:
        """Raise RankLostError where the sums of the gradients may lack a rank's part: MPI knows of a lost rank."""
        if self.run.shrinks and self.world.misses_any():
            raise RankLostError(f"a rank was lost in iteration {self.iter}")

    # Recovery.

    def _break_off(self) -> None:
        """End all waits of all ranks, and this rank's messages and its work on a GPU. Not collective."""
        self.world.revoke()
        if self.collectives is not None:
            self.collectives.revoke()
        if self.mirror:
            self.mirror.break_off()
        for workflow in self.trial.workflows:
            workflow.break_off()
        if self.world.gpu is not None:
            self.world.gpu.finish()

    def _leave_lost(self) -> list[LostRank]:
        """End all waits, and return the ranks that the World goes on without. Collective."""
        self._break_off()
        return self.world.shrink()

    def _brief(self) -> None:
        """Give spares that have taken places what the other ranks have alike. Collective."""

    def _shrink(self) -> list[LostRank]:
        """Go on with the ranks that are left; return those that are not. Collective."""
        world, watch = self.world, self.watch
        when = f"in or after iteration {self.iter}" if self._is_set_up else "in set-up"
        world.record.at(RECOVERY)
        lost = self._leave_lost()
        world.end_lost(lost)
        if not lost and not self._fills:
            self._check_false_alarm()
        self._fills = False
        if world.speaks:
            for one in lost:
                log.warning("Lost %s, %s%s", one, when, watch.last_of(one.first) if watch else "")
        check_left(world, self.run)
        return lost

    def _check_false_alarm(self) -> None:
        """Raise RanksLostError where MPI has reported losses of no rank so often that going on would not end."""
        self._false_alarms += 1
        if self._false_alarms > MOST_FALSE_ALARMS:
            raise RanksLostError(f"MPI reported a lost rank {self._false_alarms} times, but none is lost")
        if self.world.noticed:
            log.warning("MPI reported a lost rank (%s), but none is lost: all ranks go on", self.world.noticed)
            self.world.noticed = ""

    def _begin_again(self) -> None:
        """Give up what the set-up has built. Collective over the ranks that are left."""
        self._shrink()
        if self.world.is_root:
            log.warning("Ranks left: %d; they set up again", self.world.size)
        self._abandon()
        self.monitor.close()
        self._finished = False  # where it had ended, all of it is given up

    def _give_up(self) -> None:
        """Give up what the end has not freed. Collective over the ranks that are left."""
        self._shrink()
        self._finished = False  # other ranks do the part again, and wait for this one
        trial = self.trial
        self._abandon()
        if self.watch is not None:
            self.watch.abandon()
        self.trial, self._gave_up = trial, True  # whose sizes the timeline has

    def _recover(self) -> None:
        """Go on without the ranks that are lost. Collective over the ranks that are left."""
        start = time.perf_counter()
        while not self.world.attempt(self._go_on, self._break_off):
            pass
        self._give_back()
        self._kept, self._has_all, self._is_acting = None, True, self.world.is_root
        redone = self.begun - self.iter
        self._settle()
        if self.world.is_root:
            text = "Ranks left: %d; they go on at iteration %d after %.3g s; iterations redone: %d"
            log.warning(text, self.world.size, self.iter, time.perf_counter() - start, redone)

    def _go_on(self) -> None:
        """Agree on the state that counts, and build everything anew for the ranks that are left. Collective."""
        self._shrink()
        self._root_lost = not self.world.bcast(self._is_acting)  # or a spare is the root now
        self._brief()
        mine = self._kept[1] if self._kept else self._state()
        source, state = self._decide(mine)
        carried = self._kept[0] if self._kept else self._carry(state)
        if state.set_back and not self._kept and self.world.rank == source and self.mirror and self.mirror.kept:
            carried.take(*map(np.copy, self.mirror.kept.arrays))  # the rule keeps it; mirrors overwrite theirs
        carried.share(self.world, source, state.is_everywhere, mine.has_state)
        self._kept = carried, state._replace(stale=False)  # not before: another loss may have broken the broadcasts off
        self._take(state)
        self._rebuild_from(carried, state)
        self.propagate.known()
        if self._root_lost:
            self._take_over(state.has_state)
            self.monitor.follow_root(self)
        self.propagate.sync()
        rows = self.net.context.total_rows
        if rows and self.run.scaling == "weak" and self.world.is_root and not self.world.is_whole:
            text = "The global batch is now %d sample(s); the learning rate stays as given, %g"
            log.warning(text, rows * self.param.iter_size, self.rate())

    def _decide(self, mine: State) -> tuple[int, State]:
        """Return the rank whose state counts, and what all ranks take over from it, by this one's. Collective."""
        states = self.world.allgather(mine)
        source = max(range(len(states)), key=lambda rank: (states[rank].has_state, states[rank].done, -rank))
        state = states[source]
        if not state.has_state:
            source, state = self._mirrored(states) or (source, state)
        state = state._replace(
            wishes=frozenset().union(*(one.wishes for one in states)),
            calls=any(one.calls for one in states),
        )
        told = max([state.told, *(one.told for one in states if one.done == state.done)])
        is_everywhere = all(one.has_state and one.done == state.done and not one.stale for one in states)
        finished = state.finished and state.has_state
        return source, state._replace(finished=finished, is_everywhere=is_everywhere, told=told)

    def _state(self) -> State:
        """Return this rank's state."""
        everywhere = self.run.collective == "allreduce" or self._has_all
        kept = self.mirror.kept if self.mirror else None
        losses = tuple(self.losses.last) if self._is_whole else self.mark.losses
        return State(
            self.done, self.acted, self.told, self.tested, self.tests_done, losses, self.outputs,
            frozenset(self.losses.wishes | self.granting), self.begun, self.stopped, self.called is not None,
            self._finished, self._result,
            self.joined and (everywhere or self._is_acting),
            kept.about[0].done if kept else -1,
            stale=self.propagate.stale,
            instances=self.auto_instances.settled,
        )  # fmt: skip

    def _mirrored(self, states: list[State]) -> tuple[int, State] | None:
        """Return the rank that has the lost root's newest mirror, and that state; None where a snapshot is newer.

        The positions of all ranks are then those of the mirror. Collective.
        """
        source = max(range(len(states)), key=lambda rank: states[rank].mirrored)
        if (at := states[source].mirrored) < 0:
            return None
        newest = self._newest_own()
        if newest and at < iteration(newest) <= max(one.done for one in states):
            return None
        kept = self.mirror.kept if self.mirror else None
        state, self.mark = cast(tuple[State, Mark], self.world.bcast(kept and on_its_way(*kept.about), source))
        if self.world.is_root:
            log.warning("The root's mirror of iteration %d is taken", at)
        begun = max(one.begun for one in states)
        return source, state._replace(begun=begun, has_state=True, set_back=True)

    def _carry(self, state: State) -> Carried:
        """Return what the new nets take over, this rank's part at the state's iteration."""
        mark = self.mark
        if not self._is_whole:
            self.statistics.values[...] = self.net.context.xp.asarray(mark.statistics)
            if self.undo:
                self.undo.undo()
            if self._begin_values is not None:
                self.net.packed.set_data(self._begin_values)
                self._begin_values = None
        self.iter, self.tests_done = state.done, state.tests_done
        self.losses.last = deque(state.losses, self.param.average_loss)
        carried, passes = Carried(self), (state.done - mark.iter) * self.param.iter_size
        layers = zip(mark.samples, self.net.data_layers(), strict=True)
        samples = [sample + passes * layer.samples_per_batch for sample, layer in layers]
        carried.move(samples, mark.batch_number + passes)
        self.mark = Mark(self.iter, samples, mark.batch_number + passes, mark.statistics, state.losses)
        self._is_whole = True
        return carried

    def _take(self, state: State) -> None:
        """Take over from a state what does not belong to the nets."""
        self.iter = self.done = state.done
        self.begun, self.acted, self.tested, self.stopped = state.begun, state.acted, state.tested, state.stopped
        self.told, self.outputs = state.told, state.outputs
        self._finished, self._result = state.finished, state.result
        self.was_set_back |= state.set_back
        if state.wishes & {"requeue", "stop"}:
            self.acted = -1  # stop now
        if state.calls and self.called is None:
            self.called = CalledFunctions(self)

    def _rebuild_from(self, carried: Carried, state: State) -> None:
        """Build all parts for the ranks that are left. Collective."""
        self.snapshots.writer.join()
        self._abandon(moves=False)
        self.closed = True  # until all is built
        self.auto_instances.go_on(state.instances)
        self.team = Team(self.world, self.auto_instances.present)
        self._build(carried)
        self.closed = False
        self.written.forget()
        carried.give(self)
        self.losses.last = deque(state.losses, self.param.average_loss)
        granted = {state.stopped} if state.finished else set()
        self.losses.wishes, self.granting = set(state.wishes) - granted, set()
        # Some ranks may not have come as far as others:
        self._writes_snapshot, self._keeps_prefix = self.run.snapshot_async, False
        if not self.world.is_root:  # one that was the root since set-up may be so no longer
            self.lock.release()
            self.budget = None
        self._plan()

    def _replace(self, carried: Carried) -> None:
        """Build new nets for other instances. If a rank is lost meanwhile, `carried` has all that they take over.

        All ranks get the root's history before: a mirror or snapshot would not go with what is carried.
        """
        if not self.run.shrinks:
            return super()._replace(carried)
        carried.share(self.world, self.world.root, self.run.collective == "allreduce" or self._has_all)
        self._has_all = True
        self._kept = carried, self._state()
        super()._replace(carried)
        self._kept = None

    def _take_over(self, has_state: bool) -> None:
        """Make rank 0 do what the lost root did; without the solver's state go back to a snapshot. Collective."""
        self._keep_prefix()
        if self.run.snapshot_budget and self.world.is_root:
            self.budget = SnapshotBudget(self.run.snapshot_budget)
        if has_state:
            return
        if not (newest := self._newest_own()):
            prefix = self.param.snapshot_prefix
            raise RanksLostError(
                f"the root and its solver's history are lost; there is no snapshot of {prefix} of this run"
            )
        self.restore(newest)
        self.statistics.spread()
        self.acted = self.told = self.iter
        self.tested, self.was_set_back = -1, True
        self.losses.last.clear()
