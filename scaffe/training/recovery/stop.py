"""Stop: the loss of a rank ends the job (--on-rank-loss stop)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from scaffe.engine import Loss
from scaffe.parallel.iteration import Averages
from scaffe.parallel.world import World
from scaffe.training import display
from scaffe.training.checkpoints import Checkpoints
from scaffe.training.job import Job
from scaffe.training.monitor import Unwatched
from scaffe.training.parts import Parts
from scaffe.training.state_transfer import StateTransfer

T = TypeVar("T")


class Stop:
    """A recovery that does not recover: each part of the job is done once. The other ways have the same methods.

    - `world`: the ranks that set up together, None for those that a solver is given.
    - `is_skipping`: whether this rank, a spare before, goes to the part of the job that the others do again.
    - `was_set_back`: whether training has gone back to a mirror or snapshot of a lost root.
    """

    world: World | None = None
    is_skipping = was_set_back = False
    parts: Parts

    # The begin and the end.

    def begin(self) -> None:
        """Prepare the ranks that set up together. Collective."""

    def set_up(self, work: Callable[[], None]) -> None:
        """Set up by `work()`. Collective."""
        work()

    def follow(self, job: Job, parts: Parts, checkpoints: Checkpoints, monitor: Unwatched) -> None:
        """Take the parts of a solver, which are to be built."""
        self.parts = parts

    def begin_solve(self) -> None:
        """Prepare a training from its begin to its end. Collective."""

    def end_solve(self) -> None:
        """Note that the training has ended. All ranks call it alike."""

    def part(self, name: str, work: Callable[[], T]) -> T:
        """Return `work()`, the part of the job of that name. Collective."""
        return work()

    def end(self, work: Callable[[], object]) -> None:
        """Do a part of the job's end. Collective."""
        work()

    def free(self) -> None:
        """Free the solver's parts. Collective."""
        self.parts.free()

    # Iterations.

    def begin_iteration(self) -> None:
        """Note that an iteration begins."""

    def called_functions(self) -> None:
        """Note that users' functions were called before the iteration's first pass."""

    def whole(self, agree: Callable[[Loss], None]) -> tuple[Averages, Callable[[Loss], None]]:
        """Return the statistics and the agreement on the loss of an iteration, as `iterate` takes them."""
        return self.parts.statistics, agree

    @property
    def tells_at_once(self) -> bool:
        """Whether this iteration's loss can't be summed late."""
        return False

    def outputs(self) -> Mapping[str, np.ndarray]:
        """Return the train net's outputs of the iteration that was done last. Collective."""
        return display.train_outputs(self.parts.job.world, self.parts.nets)

    def end_iteration(self) -> None:
        """Note that an iteration's updates are applied."""

    # What all ranks have.

    def note_changed(self) -> None:
        """Note that parameters were changed on the root alone."""

    def note_restored(self) -> None:
        """Note that all ranks have the parameters and the history."""

    def replace(self, transfer: StateTransfer) -> None:
        """Build new nets for other instances, which take over what is handed on. Collective."""
        self.parts.replace(transfer)
