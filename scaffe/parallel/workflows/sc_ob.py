"""SC-OB: overlaps propagation with the forward pass."""

from __future__ import annotations

from scaffe.monitor.spans import AGGREGATION, PROPAGATION
from scaffe.parallel.aggregate import Aggregate
from scaffe.parallel.drive import DRIVES
from scaffe.parallel.propagate import Propagate
from scaffe.parallel.workflows.workflow import Workflow, register


class ScOb(Workflow):
    """S-Caffe, section 4.2."""

    name = "SC-OB"
    drives = tuple(DRIVES)
    advice = {
        PROPAGATION: "of which forward passes hide no more: try --workflow SC-OBR, which begins it during backward",
        AGGREGATION: "since SC-OB does not overlap it: try --workflow SC-OBR",
    }

    def propagation(self) -> Propagate:
        return self.broadcast_by_bucket()

    def aggregation(self) -> Aggregate:
        return self.one_reduce()


register(ScOb)
