"""Updates: the lines that Caffe's `debug_info` has about the updates of parameters."""

from __future__ import annotations

from collections import defaultdict
from threading import Lock

from scaffe.blob import on_host
from scaffe.debug_info import magnitude, mean
from scaffe.monitor.log import log
from scaffe.packed import PackedParameters
from scaffe.parallel.buckets import Bucket
from scaffe.proto import SolverParameter


class Updates:
    """Sums of the values of parameters, added up as buckets are updated while `wanted`; see Norms.

    Only a rank that updates parameters gets any. Several threads may update different buckets.
    """

    def __init__(self, packed: PackedParameters):
        self._packed, self._lock = packed, Lock()
        self._sums: defaultdict[int, float] = defaultdict(float)
        self.wanted = False

    def begin(self, wanted: bool) -> None:
        """Begin an iteration, whose lines are `wanted` or not."""
        self._sums.clear()
        self.wanted = wanted

    def add(self, bucket: Bucket) -> None:
        """Add a bucket's values, which are not yet updated."""
        for i in bucket.parameters:
            whole, part = self._packed.slices[i], bucket.part
            mine = self._packed.flat[slice(max(whole.start, part.start), min(whole.stop, part.stop))]
            added = magnitude(on_host(mine))
            with self._lock:
                self._sums[i] += added

    def tell(self) -> None:
        """Log the means of each parameter's values before the update, and of what the update subtracted from them.

        The latter is what the rule leaves in the gradients' memory until the next iteration.
        """
        packed = self._packed
        for i in sorted(self._sums):
            packed.settle(i)
            one, count = packed.parameters[i], packed.parameters[i].blob.count
            diff = magnitude(on_host(packed.diff_of(packed.slices[i])))
            given = one.layer, one.name or one.index, mean(self._sums[i], count), mean(diff, count)
            log.info("    [Update] Layer %s, param %s data: %.6g; diff: %.6g", *given)


def check(param: SolverParameter, replays: bool) -> None:
    """Log why `debug_info` shows nothing, where that is so."""
    if param.debug_info and replays:
        log.info("debug_info has no effect: a profile is replayed, nothing is computed")
    elif param.debug_info and not param.display:
        log.info("debug_info shows tests alone: it shows the iterations that are displayed, and there is no `display`")
