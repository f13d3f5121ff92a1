"""UpdateLines: the lines that Caffe's `debug_info` has about the updates of parameters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from threading import Lock

from scaffe.blob import on_host
from scaffe.blobs.packed import PackedParameters
from scaffe.monitor.log import log
from scaffe.net.debug_info import magnitude, mean
from scaffe.parallel.buckets import Bucket
from scaffe.proto import SolverParameter
from scaffe.solvers.owned import Owned
from scaffe.training.norms import Join, joined


class UpdateLines:
    """Sums of the values of parameters, added up as buckets are updated while `wanted`; see Norms.

    Only a rank that updates parameters gets any. Where several ranks do, `join(values)` returns sums over all of them.
    Several threads may update different buckets.
    """

    join: Join | None = None

    def __init__(self, packed: PackedParameters, owned: Callable[[], Owned]):
        self._packed, self._owned, self._lock = packed, owned, Lock()
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

        The latter is what the rule leaves in the gradients' memory until the next iteration. Collective where several
        ranks update.
        """
        packed, values, diffs = self._packed, dict(self._sums), dict[int, float]()
        for i in sorted(values):
            packed.settle(i)
            diffs[i] = sum(magnitude(on_host(packed.diff_of(part))) for part in self._owned().within(packed.slices[i]))
        if self.join and self.wanted:
            values, diffs = joined(packed, self.join, values, diffs)
        for i in sorted(values):
            one, count = packed.parameters[i], packed.parameters[i].blob.count
            given = one.layer, one.name or one.index, mean(values[i], count), mean(diffs[i], count)
            log.info("    [Update] Layer %s, param %s data: %.6g; diff: %.6g", *given)


def check(param: SolverParameter, replays: bool) -> None:
    """Log why `debug_info` shows nothing, where that is so."""
    if param.debug_info and replays:
        log.info("debug_info has no effect: a profile is replayed, nothing is computed")
    elif param.debug_info and not param.display:
        log.info("debug_info shows tests alone: it shows the iterations that are displayed, and there is no `display`")
