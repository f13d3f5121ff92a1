"""Ending: what a training does after its last iteration, as Caffe does: a snapshot, the loss, a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from scaffe.monitor.log import log
from scaffe.monitor.record import FORWARD
from scaffe.parallel.iteration import forward
from scaffe.training import display, tests
from scaffe.training.job import Job
from scaffe.training.parts import Parts
from scaffe.training.recovery.choose import Recovery


class Solves(Protocol):
    """A solver, as far as the end of its training needs it."""

    job: Job
    parts: Parts
    recovery: Recovery

    def snapshot(self) -> str:
        """Write weights and solver state."""

    def test_all(self) -> None:
        """Run all test nets."""


class Ending:
    """The parts of a job that follow its iterations, which took so many `seconds`. Collective."""

    def __init__(self, solver: Solves, seconds: float):
        self._solver, self._seconds = solver, seconds
        self.job, self.parts = solver.job, solver.parts

    def run(self) -> None:
        """Do them all, or up to the one in which the root's state was lost, and the training has gone back."""
        recovery = self._solver.recovery
        works: dict[str, Callable[[], object]] = {
            "summary": self.show_waits,
            "last snapshot": self.last_snapshot,
            "final loss": self.final_loss,
            "last test": self.last_test,
        }
        for name, work in works.items():
            recovery.part(name, work)
            if recovery.was_set_back and not (self.job.stopped or recovery.is_skipping):
                return
        recovery.part("records", self.finish_records)

    def show_waits(self) -> None:
        """Log the communication hidden in the iterations, and the waits for data."""
        parts = self.parts
        display.end(self.job.world, parts.nets, parts.workflow, parts.trial.iterations, self._seconds)

    def last_snapshot(self) -> None:
        """Write a snapshot, unless the last iteration had one or a batch script continues."""
        job = self.job
        if job.param.snapshot_after_train and job.stopped != "requeue" and not job.is_snapshot_due():
            self._solver.snapshot()

    def final_loss(self) -> None:
        """Log the smoothed loss after the last update, as Caffe does. Raise DivergedError where it is not finite."""
        job, parts = self.job, self.parts
        if job.stopped or not job.param.display or job.iter % job.param.display:
            return
        job.world.record.begin(job.iter)
        job.world.record.at(FORWARD)
        parts.propagate.sync()
        loss = forward(parts.workflow)
        parts.statistics.average()
        parts.rule.look()
        parts.losses.take(loss, job.iter)
        parts.losses.settle()
        log.info("Iteration %d, loss = %.6g", job.iter, parts.losses.mean)

    def last_test(self) -> None:
        """Run the test nets where that is due."""
        if not self.job.stopped and tests.is_due(self.job, self.parts):
            self._solver.test_all()

    def finish_records(self) -> None:
        """Log how many bad records were replaced. Raise BadRecordsError if they are too many."""
        self.parts.bad_records.finish(self.job.world)
