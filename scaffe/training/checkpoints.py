"""Checkpoints: a solver's snapshots: when they are due, what they are, how they are written and restored."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from scaffe.files import snapshot
from scaffe.files.states import Origin, complete
from scaffe.monitor.record import SNAPSHOT
from scaffe.training.job import Job
from scaffe.training.parts import Parts
from scaffe.training.signals import ACTIONS
from scaffe.training.snapshot_writer import SnapshotBudget
from scaffe.training.snapshots import Progress


class Checkpoints:
    """Snapshots of a job, written at once or meanwhile, and restored.

    - `budget` limits the time of snapshots, on the root alone; None where the solver file says when they are due.
    - `own`: the states of the prefix that this run has written, or continues. Without its root a run goes back to one
      of them, never to a snapshot that another run has left.

    `asked()` returns what this rank requests, for each of signals.ACTIONS.
    """

    def __init__(self, job: Job, parts: Parts, asked: Callable[[], Sequence[bool]]):
        self.job, self.parts, self._asked = job, parts, asked
        self.own: set[str] = set()
        self.budget = self._new_budget()
        self._keeps_prefix = self._is_writing = False
        self._lock_token = ""  # of the lock that this job holds or held

    def _new_budget(self) -> SnapshotBudget | None:
        share = self.job.run.snapshot_budget
        return SnapshotBudget(share) if share and self.job.world.is_root else None

    # When.

    def requests(self) -> list[bool]:
        """Return this rank's requests: those of its signals, and a snapshot that the budget allows.

        A snapshot is requested too if the one under way has failed: to begin it raises the error on all ranks.
        """
        asked = list(self._asked())
        if (self.budget is not None and self.budget.is_due()) or self.parts.snapshots.writer.has_failed:
            asked[ACTIONS.index("snapshot")] = True
        return asked

    def keep_prefix(self) -> None:
        """Lock the snapshot prefix, if this run writes snapshots. Collective the first time."""
        job = self.job
        writes = job.param.snapshot or job.param.snapshot_after_train or job.run.snapshot_budget
        if writes and not self._keeps_prefix:
            known = {*job.world.allgather(self._lock_token)}  # a lost root may be alive, but out of reach
            self._lock_token = job.world.on_root(lambda: job.lock.take(known))
            self._keeps_prefix = True

    def drop_requests(self) -> None:
        """Drop what was requested of this rank, and its budget: until now it was a spare."""
        self._asked()
        self.budget = None

    # Writing.

    def save(self) -> str:
        """Write weights and solver state; return the state's path on all ranks. Collective."""
        self._is_writing = False
        return self._save(self.parts.snapshots.save)

    def save_meanwhile(self) -> None:
        """Write weights and solver state as they are now, while training goes on. Collective."""
        start = time.perf_counter()
        self._save(self.parts.snapshots.save_later, meanwhile=True)
        self._is_writing = True
        if self.budget is not None:
            writing = self.parts.snapshots.writer.cpu_seconds / self.job.world.threads
            self.budget.took(time.perf_counter() - start + writing)

    def _save(self, save: Callable[[Progress], str], meanwhile: bool = False) -> str:
        job = self.job
        job.world.record.at(SNAPSHOT)
        self.parts.propagate.sync()
        if self.parts.watch is not None:
            self.parts.watch.fence()
        path, replaces, job.origin = job.world.on_root(lambda: self._place(job.iter))
        self.parts.snapshots.collect()
        progress = job.progress()
        if not replaces:  # noted before: the root may be lost once it is written
            self.own.add(path)
        job.world.on_root(lambda: save(progress))
        if not meanwhile:  # until it is written another run's file may stand there
            self.own.add(path)
        return path

    def _place(self, iteration: int) -> tuple[str, bool, Origin]:
        """Return a new snapshot's path, whether a file stands there already, and its origin. Called on the root."""
        _, path = self.parts.snapshots.paths(iteration)
        self.parts.snapshots.writer.join()  # whose state counts
        origin = snapshot.next_origin(self.job.param.snapshot_prefix, self.job.origin, iteration)
        return path, os.path.lexists(path), origin

    def finish(self) -> None:
        """Wait until the snapshot under way is written. Raise SnapshotError on all ranks where it isn't. Collective."""
        if self._is_writing:
            self._is_writing = False
            self.job.world.record.at(SNAPSHOT)
            self.job.world.on_root(self.parts.snapshots.writer.finish)

    # Restoring.

    def restore(self, path: str | os.PathLike[str]) -> bool:
        """Continue where the snapshot was taken; return whether there was one, which "auto" does not require.

        Collective.
        """
        self.finish()
        job, parts = self.job, self.parts
        if parts.mirror:
            parts.mirror.forget()
        restored = parts.snapshots.restore(path, job.seed)
        if restored:
            (job.iter, job.tests_done, job.seed, origin), source = restored
            own = job.world.on_root(lambda: self._restored_own(source))
            self.own |= own
            job.origin = origin if own else Origin()  # one of another prefix counts its runs anew
            job.auto_instances.restored(parts.net)
            if parts.update.is_shared:
                parts.snapshots.history.now.give_out()
            elif parts.propagate.everywhere or job.run.shrinks:
                parts.snapshots.share_history()
            parts.residuals.replace(parts.residuals.kept)
            parts.propagate.changed()
        parts.propagate.sync()
        return bool(restored)

    def _restored_own(self, source: str) -> set[str]:
        """Return the state of the prefix from which the solver was restored, if it is one. Called on the root."""
        return {one.path for one in complete(self.job.param.snapshot_prefix) if os.path.samefile(one.path, source)}

    def newest_own(self) -> str | None:
        """Return the newest whole snapshot that this run can go back to, None without one. Collective."""
        own = set[str]().union(*self.job.world.allgather(self.own))
        return self.job.world.on_root(lambda: snapshot.newest_of(own, self.job.param.snapshot_prefix))

    # Other ranks.

    def follow_ranks(self) -> None:
        """Go on among other ranks, some of which may not have come as far as others."""
        self._is_writing, self._keeps_prefix = self.job.run.snapshot_async, False
        if not self.job.world.is_root:  # one that was the root since set-up may be so no longer
            self.job.lock.release()
            self.budget = None

    def follow_root(self) -> None:
        """Let another root than before write snapshots. Collective."""
        self.keep_prefix()
        self.budget = self._new_budget() or self.budget

    # The end.

    def close(self) -> None:
        """Wait until the snapshot under way is written, and unlock the prefix."""
        self.parts.snapshots.writer.join()
        self.job.lock.release()
        self._keeps_prefix = False
