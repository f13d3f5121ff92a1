"""One rank alone has nobody to talk to: it computes and updates, whatever the workflow."""

from __future__ import annotations

from scaffe.parallel.aggregate import Aggregate
from scaffe.parallel.propagate import Propagate
from scaffe.parallel.workflows.workflow import Workflow


class Alone(Workflow):
    """What one rank takes in place of any workflow; it has no name, and is not to be chosen."""

    def propagation(self) -> Propagate:
        return Propagate(self.parts.world, self.packed, None)

    def aggregation(self) -> Aggregate:
        return Aggregate(*self.summing)
