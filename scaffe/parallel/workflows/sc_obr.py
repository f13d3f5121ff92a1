"""SC-OBR: propagation overlapped with the forward pass, and aggregation with the backward pass.

Beyond the paper, each bucket is updated, and broadcast for the next iteration, as soon as its sum is complete.
"""

from __future__ import annotations

from scaffe.parallel.aggregate import Aggregate, StagedAggregate
from scaffe.parallel.drive import DRIVES
from scaffe.parallel.ordering import Ordering
from scaffe.parallel.owners import ROOT
from scaffe.parallel.propagate import Propagate, StagedPropagate
from scaffe.parallel.workflows.workflow import Workflow, register

FEW_NODES = 2  # up to so many, broadcasts and reduces use opposite directions of the root's links


class ScObr(Workflow):
    """S-Caffe, section 4.3."""

    name = "SC-OBR"
    drives = tuple(DRIVES)
    updates_early = True
    is_tried = True

    def propagation(self) -> Propagate:
        """Return one broadcast per bucket; all start early if they do not share links with reduces."""
        return self.broadcast_by_bucket(ahead=0.0 if self._shares_links else 1.0)

    def aggregation(self) -> Aggregate:
        """Return one reduce per bucket."""
        return self.reduce_by_bucket()

    def order(self) -> Ordering | None:
        """Return the Ordering that measures how many bytes to broadcast early, if they share links with reduces."""
        propagate, aggregate = self.propagate, self.aggregate
        if self._shares_links and isinstance(propagate, StagedPropagate) and isinstance(aggregate, StagedAggregate):
            return Ordering(propagate, aggregate, self.parts.world.allsums)
        return None

    @property
    def _shares_links(self) -> bool:
        """Whether early broadcasts use links that reduces need."""
        few = FEW_NODES if self.parts.owners == ROOT else 1  # several owners send and receive both at once
        return self.early and self.comm.group.shape[0] > few


register(ScObr)
