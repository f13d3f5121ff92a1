"""SC-OB: propagation overlapped with the forward pass, and one blocking reduce after the backward pass."""

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
        PROPAGATION: "more than forward passes hide: try --workflow SC-OBR, which starts it during backward",
        AGGREGATION: "since SC-OB does not overlap it: try --workflow SC-OBR",
    }

    def propagation(self) -> Propagate:
        """Return one broadcast per bucket."""
        return self.broadcast_by_bucket()

    def aggregation(self) -> Aggregate:
        """Return one reduce of all gradients."""
        return self.one_reduce()


register(ScOb)
