"""SavedSolver: a solver that writes snapshots and continues at them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

from scaffe.files import snapshot
from scaffe.files.states import Origin, complete
from scaffe.monitor.record import SNAPSHOT
from scaffe.training.built_solver import BuiltSolver
from scaffe.training.collective import collective, lasting
from scaffe.training.signals import ACTIONS
from scaffe.training.snapshot_writer import SnapshotBudget
from scaffe.training.snapshots import Progress

T = TypeVar("T")


class SavedSolver(BuiltSolver):
    """The part of a solver that writes snapshots, at once or meanwhile, and restores them.

    - `budget` limits the time of snapshots, on the root alone; None where the solver file says when they are due.
    - `origin`: that of the last state that it has written, or continues.
    - `own_snapshots`: the states of the prefix that this run has written, or continues. Without its root a run goes
      back to one of them, never to a snapshot that another run has left.
    """

    budget: SnapshotBudget | None
    origin: Origin
    own_snapshots: set[str]
    failed_alone: bool
    _has_all = False  # all ranks have the parameters and the history
    _keeps_prefix = _writes_snapshot = False
    _lock_token = ""  # of the lock that this job holds or held

    def _keep_prefix(self) -> None:
        """Lock the snapshot prefix, if this run writes snapshots. Collective the first time."""
        writes = self.param.snapshot or self.param.snapshot_after_train or self.run.snapshot_budget
        if writes and not self._keeps_prefix:
            former = {*self.world.allgather(self._lock_token)}  # a lost root may be alive, but out of reach
            self._lock_token = self.world.on_root(lambda: self.lock.take(former))
            self._keeps_prefix = True

    def _lasting(self, part: Callable[[], T]) -> T:
        """Return `part()`. Collective."""
        return part()

    def _is_snapshot_due(self) -> bool:
        """Return whether the solver file's interval, if it counts, ends at this iteration."""
        every = 0 if self.run.snapshot_budget else self.param.snapshot
        return every > 0 and self.iter % every == 0

    def _is_display_due(self, iteration: int) -> bool:
        """Return whether an iteration is displayed."""
        return self.param.display > 0 and iteration % self.param.display == 0

    @collective
    @lasting
    def snapshot(self) -> str:
        """Write weights and solver state; return the state's path on all ranks."""
        self._writes_snapshot = False
        return self._save(self.snapshots.save)

    def _snapshot_meanwhile(self) -> None:
        """Write weights and solver state as they are now, while training goes on. Collective."""
        start = time.perf_counter()
        self._save(self.snapshots.save_later, meanwhile=True)
        self._writes_snapshot = True
        if self.budget is not None:
            self.budget.took(time.perf_counter() - start + self.snapshots.writer.cpu_seconds / self.world.threads)

    def _save(self, save: Callable[[Progress], str], meanwhile: bool = False) -> str:
        self.world.record.at(SNAPSHOT)
        self.propagate.sync()
        if self.watch is not None:
            self.watch.fence()
        path, replaces, self.origin = self.world.on_root(lambda: self._place(self.iter))
        progress = Progress(self.iter, self.tests_done, self.seed, self.origin)
        if not replaces:  # noted before: the root may be lost once it is written
            self.own_snapshots.add(path)
        self.world.on_root(lambda: save(progress))
        if not meanwhile:  # until it is written another run's file may stand there
            self.own_snapshots.add(path)
        return path

    def _place(self, iteration: int) -> tuple[str, bool, Origin]:
        """Return a new snapshot's path, whether a file stands there already, and its origin. Called on the root."""
        _, path = self.snapshots.paths(iteration)
        self.snapshots.writer.join()  # whose state counts
        origin = snapshot.next_origin(self.param.snapshot_prefix, self.origin, iteration)
        return path, os.path.lexists(path), origin

    def _newest_own(self) -> str | None:
        """Return the newest whole snapshot that this run can go back to, None without one. Collective."""
        own = set[str]().union(*self.world.allgather(self.own_snapshots))
        return self.world.on_root(lambda: snapshot.newest_of(own, self.param.snapshot_prefix))

    def _finish_snapshot(self) -> None:
        """Wait until the snapshot under way is written. Raise SnapshotError on all ranks where it isn't. Collective."""
        if self._writes_snapshot:
            self._writes_snapshot = False
            self.world.record.at(SNAPSHOT)
            self.world.on_root(self.snapshots.writer.finish)

    def _requests(self) -> list[bool]:
        """Return this rank's requests: those of its signals, and a snapshot that the budget allows.

        A snapshot is requested too if the one under way has failed: to begin it raises the error on all ranks.
        """
        asked = list(self.asked())
        if (self.budget is not None and self.budget.is_due()) or self.snapshots.writer.has_failed:
            asked[ACTIONS.index("snapshot")] = True
        return asked

    @collective
    @lasting
    def restore(self, path: str | os.PathLike[str]) -> None:
        """Continue where the snapshot was taken, or at the newest whole one of the prefix for the path "auto"."""
        self._finish_snapshot()
        self._forget_mirror()
        if restored := self.snapshots.restore(path, self.seed):
            (self.iter, self.tests_done, self.seed, origin), source = restored
            own = self.world.on_root(lambda: self._restored_own(source))
            self.own_snapshots |= own
            self.origin = origin if own else Origin()  # one of another prefix counts its runs anew
            self.auto_instances.restored(self.net)
            if self.propagate.everywhere or self.run.shrinks:
                self.snapshots.share_history()
            self.propagate.changed()
        self.propagate.sync()
        self._has_all |= bool(restored) and self.run.shrinks

    def _restored_own(self, source: str) -> set[str]:
        """Return the state of the prefix from which the solver was restored, if it is one. Called on the root."""
        return {one.path for one in complete(self.param.snapshot_prefix) if os.path.samefile(one.path, source)}
