"""Alone: the workflow of a single rank, which computes and updates and sends nothing."""

from __future__ import annotations

from scaffe.parallel.aggregate import Aggregate, LocalAggregate
from scaffe.parallel.propagate import Propagate
from scaffe.parallel.workflows.workflow import Workflow


class Alone(Workflow):
    """Replaces any workflow on a single rank; it has no name, and is not registered."""

    updates_early = True

    def propagation(self) -> Propagate:
        """Return a propagation that sends nothing."""
        return Propagate(self.parts.world, self.packed, None)

    def aggregation(self) -> Aggregate:
        """Return an aggregation that sends nothing.

        It updates all buckets after the backward pass; of several instances each when it is summed, if that may be.
        """
        if len(self.nets) == 1:
            return Aggregate(*self.summing)
        return LocalAggregate(*self.summing, early=self.early)
