"""Patience: training stops once the held-out loss no longer falls, and the best weights are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from scaffe.errors import AgreedError, ScaffeError
from scaffe.monitor.log import log
from scaffe.net.net import Net
from scaffe.proto import SolverParameter

BEST = "best"  # behind the prefix of snapshots


class Patience:
    """The lowest loss of the first test net, and the tests since; all ranks have the same.

    `tests` without a lower one end the training; 0 waits for ever, and keeps no best weights. A training that goes on
    from a snapshot counts anew.
    """

    def __init__(self, tests: int):
        self.limit = tests
        self.best, self.best_at, self.since = inf, -1, 0

    def check(self, param: SolverParameter, test_nets: Sequence[Net]) -> None:
        """Raise ScaffeError, on all ranks, where no test has a loss."""
        if not self.limit:
            return
        if not test_nets or not param.test_interval:
            raise AgreedError(
                f"--patience {self.limit}: the solver file tests nothing; give test_iter and test_interval"
            )
        if not test_nets[0].losses:
            raise AgreedError(f"--patience {self.limit}: the test net has no loss; include its loss layer in TEST")

    def take(self, iteration: int, loss: float, keep: Callable[[], str]) -> bool:
        """Take a test's loss; return whether training has to stop. `keep` writes the weights, and returns their path.

        Collective.
        """
        if not self.limit or iteration == self.best_at:  # the same test again, as after a lost rank
            return False
        if loss < self.best:
            self.best, self.best_at, self.since = loss, iteration, 0
            log.info("Held-out loss %.6g, the lowest so far; weights in %s", loss, keep())
            return False
        self.since += 1
        if self.since < self.limit:
            return False
        log.info(
            "Held-out loss %.6g; %d tests since the lowest, %.6g at iteration %d: training stops",
            loss, self.since, self.best, self.best_at,
        )  # fmt: skip
        return True


def best_path(param: SolverParameter) -> str:
    """Return the path of the best weights. Raise ScaffeError without a prefix."""
    if not param.snapshot_prefix:
        raise ScaffeError("snapshot_prefix is missing")
    suffix = ".h5" if param.snapshot_format == SolverParameter.HDF5 else ""
    return f"{param.snapshot_prefix}_{BEST}.caffemodel{suffix}"
