"""Choose: several workflows in turn in the first iterations, then the fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from scaffe.parallel.workflows.workflow import Workflow


class WorkflowTrial:
    """Have workflows take turns of ITERATIONS; then the one with the least median of the slowest rank's seconds stays.

    Every rank calls `took` after each iteration. `gather` returns all ranks' values of one. Of a turn the first
    iteration doesn't count, since it may end what another workflow began, nor does the first round.
    """

    ROUNDS, ITERATIONS = 4, 3

    def __init__(self, workflows: dict[str, Workflow], gather: Callable[[list[list[float]]], list[list[list[float]]]]):
        self._workflows, self._gather = workflows, gather
        self._seconds: list[list[float]] = [[] for _ in workflows]
        self._done = [0] * len(workflows)  # iterations
        self._taken, self._turn = 0, 0
        self._chosen = len(workflows) == 1

    @property
    def workflows(self) -> Sequence[Workflow]:
        """The workflows that are still in the trial, or the one that stays."""
        return list(self._workflows.values())

    @property
    def workflow(self) -> Workflow:
        """The one whose turn it is, or that was chosen."""
        return self.workflows[self._turn]

    @property
    def iterations(self) -> int:
        """How many iterations the present workflow has run."""
        return self._done[self._turn]

    def took(self, seconds: float) -> str:
        """Take note of an iteration's time; return what was chosen and why after the last of the trial. Collective."""
        self._done[self._turn] += 1
        if self._chosen:
            return ""
        count, self._taken = len(self._workflows), self._taken + 1
        within, round_ = (self._taken - 1) % self.ITERATIONS, (self._taken - 1) // (self.ITERATIONS * count)
        if within and round_:
            self._seconds[self._turn].append(seconds)
        if within < self.ITERATIONS - 1:
            return ""
        self.workflow.propagate.sync()  # the next one begins with the root's parameters everywhere
        if self._taken < self.ROUNDS * self.ITERATIONS * count:
            self._turn = (self._turn + 1) % count
            return ""
        return self._choose()

    def close(self) -> None:
        """Make all ranks' parameters the root's, then end the workflows. Collective."""
        if not self.workflow.propagate.is_broken_off:
            self.workflow.propagate.sync()
        for workflow in self.workflows:
            workflow.close()

    def _choose(self) -> str:
        slowest = np.max(self._gather(self._seconds), axis=0)  # by workflow and iteration
        middle = np.median(slowest, axis=1)
        names, best = list(self._workflows), int(np.argmin(middle))
        times = ", ".join(f"{name} {1e3 * t:.4g} ms" for name, t in zip(names, middle, strict=True))
        for k, workflow in enumerate(self.workflows):
            if k != best:
                workflow.close()
        self._workflows = {names[best]: self.workflows[best]}
        self._done, self._turn, self._chosen = [self._done[best]], 0, True
        return f"Workflow {names[best]}, the fastest in the first iterations: {times} on the slowest rank"
