"""Choose: run several workflows in turn during the first iterations, then keep the fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from scaffe.parallel.workflows.workflow import Workflow


class WorkflowTrial:
    """Run workflows in turns of ITERATIONS, for ROUNDS rounds; then keep the one with the least median time.

    The time of an iteration is that of its slowest rank. `gather(values)` returns all ranks' values. Every rank calls
    `took` after each iteration. The first round is not measured, nor is the first iteration of a turn, since it may
    complete what another workflow has started. With a single workflow there is no trial.
    """

    ROUNDS, ITERATIONS = 4, 3
    on_choice: Callable[[], object] = staticmethod(lambda: None)  # called before the others are closed, on all ranks

    def __init__(self, workflows: dict[str, Workflow], gather: Callable[[list[list[float]]], list[list[list[float]]]]):
        self._workflows, self._gather = workflows, gather
        self._seconds: list[list[float]] = [[] for _ in workflows]
        self._done = [0] * len(workflows)  # iterations
        self._taken, self._turn = 0, 0
        self._chosen = len(workflows) == 1

    @property
    def workflows(self) -> Sequence[Workflow]:
        """The workflows in the trial, or the one that was chosen."""
        return list(self._workflows.values())

    @property
    def workflow(self) -> Workflow:
        """The workflow of the next iteration."""
        return self.workflows[self._turn]

    @property
    def iterations(self) -> int:
        """The number of iterations that the present workflow has run."""
        return self._done[self._turn]

    def took(self, seconds: float) -> str:
        """Record an iteration's time on this rank. Collective.

        After the last iteration of the trial return the choice, with all times, in a sentence; else "".
        """
        self._done[self._turn] += 1
        if self._chosen:
            return ""
        count, self._taken = len(self._workflows), self._taken + 1
        within, round_ = (self._taken - 1) % self.ITERATIONS, (self._taken - 1) // (self.ITERATIONS * count)
        if within and round_:
            self._seconds[self._turn].append(seconds)
        if within < self.ITERATIONS - 1:
            return ""
        self.workflow.propagate.sync()  # the next workflow starts with equal parameters on all ranks
        if self._taken < self.ROUNDS * self.ITERATIONS * count:
            self._turn = (self._turn + 1) % count
            return ""
        return self._choose()

    def close(self) -> None:
        """Make all ranks' parameters equal to the root's, then close the workflows. Collective."""
        if not self.workflow.propagate.is_broken_off:
            self.workflow.propagate.sync()
        for workflow in self.workflows:
            workflow.close()

    @classmethod
    def without(cls) -> WorkflowTrial:
        """Return a trial without workflows, for a solver whose workflows are not built yet."""
        return cls({}, lambda mine: [mine])

    def _choose(self) -> str:
        slowest = np.max(self._gather(self._seconds), axis=0)  # by workflow and iteration
        middle = np.median(slowest, axis=1)
        names, best = list(self._workflows), int(np.argmin(middle))
        self.on_choice()
        times = ", ".join(f"{name} {1e3 * t:.4g} ms" for name, t in zip(names, middle, strict=True))
        for k, workflow in enumerate(self.workflows):
            if k != best:
                workflow.close()
        self._workflows = {names[best]: self.workflows[best]}
        self._done, self._turn, self._chosen = [self._done[best]], 0, True
        return f"Workflow {names[best]}, the fastest in the first iterations: {times} on the slowest rank"
