"""Job: what a training has whatever the number of its ranks: its settings, and how far it has come."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

import numpy as np

from scaffe.compute import Compute
from scaffe.devices.choices import Choices
from scaffe.files.prefix_lock import PrefixLock
from scaffe.files.states import Origin
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.proto import SolverParameter
from scaffe.solvers import lr_policy
from scaffe.training.auto_instances import AutoInstances
from scaffe.training.display import Shown
from scaffe.training.patience import Patience
from scaffe.training.settings import Settings
from scaffe.training.snapshots import Progress


@dataclass
class Job:
    """A training: its ranks and settings, and how far it has come.

    - `compute`: that of the settings, as nets compute with it.
    - `iter`, `tests_done`: iterations that are done, and tests of all nets. `tested`: the iteration of the last test.
    - `handled`: iterations after which snapshots and requests were handled; `granted`: the requests under way.
    - `told`: iterations after which the last one was displayed and measured; `outputs`: the train net's then.
    - `stopped`: the request that ended the training early, "stop" or "requeue".
    - `origin`: that of the last state that was written, or is continued.
    - `patience`: how many tests may not lower the loss.
    - `shown`: the iteration that was displayed last.
    """

    world: World
    param: SolverParameter
    settings: Settings
    compute: Compute
    auto_instances: AutoInstances
    choices: Choices
    lock: PrefixLock
    seed: int
    origin: Origin = Origin()
    iter: int = 0
    tests_done: int = 0
    tested: int = -1
    handled: int = 0
    granted: Set[str] = frozenset()
    told: int = 0
    outputs: dict[str, np.ndarray] = field(default_factory=dict)  # never changed in place
    stopped: str = ""
    shown: Shown = Shown(0, 0.0)
    patience: Patience = field(init=False)

    def __post_init__(self) -> None:
        self.patience = Patience(self.run.patience)

    @property
    def run(self) -> Run:
        """How the ranks work together."""
        return self.settings.run

    def rate(self) -> float:
        """Return the learning rate of the current iteration, before any lr_mult."""
        return lr_policy.rate(self.param, self.iter)

    def progress(self) -> Progress:
        """Return how far the training has come, for a snapshot."""
        return Progress(self.iter, self.tests_done, self.seed, self.origin)

    def is_display_due(self, iteration: int) -> bool:
        """Return whether an iteration is displayed."""
        return self.param.display > 0 and iteration % self.param.display == 0

    def is_snapshot_due(self) -> bool:
        """Return whether the solver file's interval, if it counts, ends at this iteration."""
        every = 0 if self.run.snapshot_budget else self.param.snapshot
        return every > 0 and self.iter % every == 0
