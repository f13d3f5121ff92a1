"""SC-OBR: overlaps propagation with the forward pass and aggregation with the backward pass.

Beyond the paper, each bucket is updated, and sent out for the next iteration, as soon as its sum is complete.
"""

from __future__ import annotations

from scaffe.parallel.aggregate import Aggregate, StagedAggregate
from scaffe.parallel.drive import DRIVES
from scaffe.parallel.ordering import Ordering
from scaffe.parallel.propagate import Propagate, StagedPropagate
from scaffe.parallel.workflows.workflow import Workflow, register

FEW_NODES = 2  # up to which broadcasts never share a link's direction with reduces


class ScObr(Workflow):
    """S-Caffe, section 4.3."""

    name = "SC-OBR"
    drives = tuple(DRIVES)
    updates_early = True
    is_tried = True

    def propagation(self) -> Propagate:
        return self.broadcast_by_bucket(ahead=0.0 if self._disturbs else 1.0)

    def aggregation(self) -> Aggregate:
        return self.reduce_by_bucket()

    def order(self) -> Ordering | None:
        propagate, aggregate = self.propagate, self.aggregate
        if self._disturbs and isinstance(propagate, StagedPropagate) and isinstance(aggregate, StagedAggregate):
            return Ordering(propagate, aggregate, self.parts.world.allsums)
        return None

    @property
    def _disturbs(self) -> bool:
        """Whether broadcasts of early updates take links that reduces need."""
        return self.early and self.comm.group.shape[0] > FEW_NODES


register(ScObr)
