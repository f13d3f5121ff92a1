"""SC-B: one blocking broadcast before the forward pass, and one blocking reduce after the backward pass."""

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
        """Return one broadcast of all parameters."""
        return self.one_broadcast()

    def aggregation(self) -> Aggregate:
        """Return one reduce of all gradients."""
        return self.one_reduce()


register(ScB)
