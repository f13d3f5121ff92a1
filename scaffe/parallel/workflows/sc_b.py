"""SC-B: waits for one broadcast before the forward pass and one reduce after the backward pass."""

from __future__ import annotations

from scaffe.monitor.spans import AGGREGATION, PROPAGATION
from scaffe.parallel.aggregate import Aggregate
from scaffe.parallel.propagate import Propagate
from scaffe.parallel.workflows.workflow import Workflow, register


class ScB(Workflow):
    """S-Caffe, section 4.1."""

    name = "SC-B"
    is_tried = True
    advice = {
        PROPAGATION: "since SC-B does not overlap it: try --workflow SC-OBR, or SC-OB",
        AGGREGATION: "since SC-B does not overlap it: try --workflow SC-OBR",
    }

    def propagation(self) -> Propagate:
        return self.one_broadcast()

    def aggregation(self) -> Aggregate:
        return self.one_reduce()


register(ScB)
