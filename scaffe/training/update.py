"""Update: what happens to a bucket of parameters once the sums of its gradients are complete."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scaffe import solvers
from scaffe.monitor.log import log
from scaffe.net.net import Net
from scaffe.parallel.buckets import Bucket
from scaffe.parallel.workflows.workflow import Workflow
from scaffe.training.job import Job
from scaffe.training.norms import Norms
from scaffe.training.replay import Replay
from scaffe.training.shared_history import RuleHistory, describe
from scaffe.training.undo import Undo
from scaffe.training.update_lines import UpdateLines


class Update:
    """The update of a net's buckets by the solver's rule, at the job's iteration; an aggregation calls it.

    - `undo` keeps what it replaces, where a lost rank can break it off: if `is_early()`, before all sums are complete.
    - `norms` and `lines` add up what is shown of the update, where that is asked for.
    - `replay` takes its time in place of the rule, None without a profile.

    Several threads may update different buckets.
    """

    _owners = ""  # of the workflow that it follows

    def __init__(self, job: Job, net: Net, replay: Replay | None, is_early: Callable[[], bool]):
        self._job, self.replay, self._is_early = job, replay, is_early
        self.rule = solvers.create(job.param, net.packed, net.engine)
        self.history = RuleHistory(job.world, self.rule)
        self.undo = Undo(net.packed, self.rule) if job.run.shrinks else None
        self.norms = Norms(net.packed, lambda: self.rule.owned, job.param.iter_size)
        self.lines = UpdateLines(net.packed, lambda: self.rule.owned)

    def begin(self, workflow: Workflow, before: Sequence[Bucket] | None = None) -> None:
        """Have this rank's part of the history alone, where several ranks own the workflow's buckets. Collective.

        What is added up of the update is then summed over the ranks. With `before`, a history that was taken over is
        that of the owners of these buckets.
        """
        self.history.begin(workflow.buckets if before is None else before)
        self._owners = workflow.parts.owners if before is None else ""
        self.follow(workflow)
        if self.is_shared:
            log.info("%s", describe(self.rule, workflow.buckets, self._job.world.size, self._owners))

    def follow(self, workflow: Workflow) -> None:
        """Give the history to this workflow's owners, if they are others than the last one's. Collective."""
        if workflow.parts.owners != self._owners:
            if workflow.buckets != self.history.buckets:
                self.history.follow(workflow.buckets)
            self._owners = workflow.parts.owners
        self.norms.join = self.lines.join = self._job.world.allsums if self.is_shared else None

    @property
    def is_shared(self) -> bool:
        """Whether several ranks update, each what it owns."""
        return self.history.now.is_shared

    def __call__(self, bucket: Bucket) -> None:
        """Update the parameters of a bucket from their summed gradients, at the current rate. Not collective."""
        if self.undo and self._is_early():  # else no message can break the updates off
            self.undo.keep(bucket.part)
        if self.replay:
            return self.replay.update(bucket.part)
        if self.norms.wanted:
            self.norms.add(bucket)
        if self.lines.wanted:
            self.lines.add(bucket)
        self.rule.update(bucket.parameters, self._job.rate(), self._job.iter, bucket.part)
