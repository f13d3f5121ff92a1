"""Rollback: what an iteration changes before it is done, to put it back where a lost rank breaks it off."""

from __future__ import annotations

from collections import deque

import numpy as np

from scaffe.blob import on_host
from scaffe.training.job import Job
from scaffe.training.parts import Parts
from scaffe.training.recovery.state import Mark, State
from scaffe.training.state_transfer import StateTransfer


class Rollback:
    """Where this rank's iteration, or another part of the job, began, and how to get back there.

    - `done`, `begun`: iterations whose updates are applied, and those that have begun.
    - `mark`: where the iteration or part began. `is_whole`: whether an iteration is done that began there.
    """

    mark: Mark

    def __init__(self, job: Job, parts: Parts):
        self._job, self._parts = job, parts
        self.done = self.begun = 0
        self.is_whole = True
        self._values: np.ndarray | None = None  # of an iteration that all ranks begin with the history

    def settle(self) -> None:
        """Note that what is done up to here stays."""
        self.done = self.begun = self._job.iter
        self.note_place()

    def note_place(self) -> None:
        """Note where this iteration, or another part of the job, begins."""
        parts = self._parts
        samples = [layer.position for layer in parts.net.data_layers()]
        values, losses = parts.statistics.values.copy(), tuple(parts.losses.last)
        self.mark = Mark(self._job.iter, samples, parts.net.context.batch_number, values, losses)
        self.is_whole = False
        if parts.update.undo:
            parts.update.undo.begin()

    def begin_iteration(self, has_all: bool) -> None:
        """Note that an iteration begins, which changes parameters; with `has_all` it begins with the history."""
        parts = self._parts
        self.note_place()
        self.begun = self._job.iter + 1
        if parts.update.undo and parts.called is not None:
            parts.update.undo.keep_all()
        if has_all and self._receives:
            self._values = on_host(parts.net.packed.flat).copy()

    @property
    def _receives(self) -> bool:
        """Whether this iteration's messages may replace parameters by other values, the root's."""
        parts = self._parts
        down, changes = parts.propagate, parts.workflow.early or parts.called is not None
        return (changes or down.stale or down.rounded is not None) and not down.everywhere

    def end_iteration(self) -> None:
        """Note that an iteration's updates are applied. Raise RankLostError where its sums may lack a rank's part."""
        if self._parts.workflow.early:
            self._parts.check_sums()
        self.done, self.is_whole = self._job.iter + 1, True
        self._values = None

    @property
    def losses(self) -> tuple[float, ...]:
        """The last losses of the iterations that are done."""
        return tuple(self._parts.losses.last) if self.is_whole else self.mark.losses

    def put_back(self, state: State) -> StateTransfer:
        """Put back what was not done; return what new nets take over, this rank's part at the state's iteration."""
        job, parts, mark = self._job, self._parts, self.mark
        if not self.is_whole:
            parts.statistics.values[...] = parts.net.context.xp.asarray(mark.statistics)
            if parts.update.undo:
                parts.update.undo.undo()
            if self._values is not None:
                parts.net.packed.set_data(self._values)
                self._values = None
        job.iter, job.tests_done = state.done, state.tests_done
        parts.losses.last = deque(state.losses, job.param.average_loss)
        transfer, passes = StateTransfer(parts), (state.done - mark.iter) * job.param.iter_size
        layers = zip(mark.samples, parts.net.data_layers(), strict=True)
        samples = [sample + passes * layer.samples_per_batch for sample, layer in layers]
        transfer.move(samples, mark.batch_number + passes)
        self.mark = Mark(job.iter, samples, mark.batch_number + passes, mark.statistics, state.losses)
        self.is_whole = True
        return transfer
