"""Estimate: an iteration's length by closed forms, for any number of ranks, and the best way to run it.

Where `simulate_iteration` drives the ranks, one by one, this follows one iteration of the slowest rank: buckets are
summed in the order of the backward pass, two at a time, and broadcast in the order of the forward pass. Tests hold it
against the driven ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from collectives.schedules.algorithms import LEADERS
from collectives.schedules.registry import CollectiveTime
from collectives.staged import LANES
from scaffe.errors import ScaffeError
from scaffe.net.net import Net
from scaffe.parallel.buckets import Bucket, make_buckets
from scaffe.parallel.ordering import share_ahead
from scaffe.parallel.owners import GIVES, OWNERS, ROOT, SLICES, SPREAD
from scaffe.parallel.propagate import buckets_ahead
from scaffe.parallel.run import SYNCS, Run
from scaffe.parallel.workflows.sc_b import ScB
from scaffe.parallel.workflows.sc_ob import ScOb
from scaffe.parallel.workflows.sc_obr import ScObr
from scaffe.simulation.closed_forms import SEARCHED, ClosedForms
from scaffe.simulation.clusters import DescribedCluster
from scaffe.simulation.layer_times import LayerTimes
from scaffe.simulation.rank import bucket_bytes, small_message

SIZES = "0", "1M", "4M", "16M", "64M"  # of buckets
TRIED = tuple(
    Run(workflow, sync, reduce="auto", bucket_bytes=nbytes, owners=owners)
    for sync in SYNCS
    for owners in (OWNERS if sync == "reduce-bcast" else (ROOT,))
    for workflow, sizes in ((ScB.name, ("4M",)), (ScOb.name, ("4M", "64M")), (ScObr.name, SIZES))
    for nbytes in sizes
    if sync == "reduce-bcast" or workflow != ScOb.name  # without broadcasts there is nothing to stage
)
BYTES = {"float32": 1.0, "bf16": 0.5, "float16": 0.5, "int8": 260 / 1024}  # of those of float32; int8 has scales


@dataclass(frozen=True)
class Estimate:
    """An iteration's seconds, those in which a rank computes, and the algorithms by collective and bytes."""

    run: Run
    seconds: float
    computing: float
    chosen: Mapping[tuple[str, int], CollectiveTime]

    @property
    def exposed(self) -> float:
        """Seconds in which computation waits for messages. Updates that hide behind messages make it 0."""
        return max(0.0, self.seconds - self.computing)


def best(
    net: Net,
    ranks: int,
    cluster: DescribedCluster,
    times: LayerTimes,
    runs: Sequence[Run] = TRIED,
    names: Sequence[str] = SEARCHED,
) -> list[Estimate]:
    """Return the estimates of some runs, each by the fastest of some algorithms; the fastest run first.

    A message that is fastest by itself can hold up the next one, so that each run is tried without leaders too.
    Raise ScaffeError if none of the names does a run's collectives.
    """
    every = ClosedForms(cluster.links, ranks, tuple(names), int(cluster["leaders"]))
    plain = replace(every, names=tuple(name for name in names if not name.startswith(LEADERS)))
    tried = dict.fromkeys((every, plain) if every.has_leaders else (plain,))
    forms = [one for one in tried if one.names] or [every]
    found = [min((estimate(net, cluster, run, times, one) for one in forms), key=_seconds) for run in runs]
    return sorted(found, key=_seconds)


def _seconds(one: Estimate) -> float:
    return one.seconds


def estimate(
    net: Net,
    cluster: DescribedCluster,
    run: Run,
    times: LayerTimes,
    forms: ClosedForms,
    down: ClosedForms | None = None,
) -> Estimate:
    """Return the estimate of one run; `down` are the broadcasts' forms, those of the sums by default.

    Raise ScaffeError for a workflow without an estimate.
    """
    return _Estimation(net, cluster, run, times, forms, down or forms).result()


class _Estimation:
    """One iteration of the slowest rank; its times are seconds since its begin."""

    def __init__(
        self, net: Net, cluster: DescribedCluster, run: Run, times: LayerTimes, forms: ClosedForms, down: ClosedForms
    ):
        if run.workflow not in (ScB.name, ScOb.name, ScObr.name):
            raise ScaffeError(f"workflow '{run.workflow}' has no estimate; known: {ScB.name} {ScOb.name} {ScObr.name}")
        self.run, self.times, self.forms, self.down, self.net = run, times, forms, down, net
        nbytes = bucket_bytes(run, net.packed.nbytes, cluster.links, forms.ranks)
        self.buckets = make_buckets(net, nbytes, cut=run.workflow == ScObr.name)
        self.itemsize: int = net.packed.flat.itemsize
        self.loss = small_message(cluster, forms.ranks)
        self.chosen: dict[tuple[str, int], CollectiveTime] = {}
        self.what = run.collective
        self.gives, self.owned = GIVES.get(self.what, ""), run.owners != ROOT

    def result(self) -> Estimate:
        """Follow the iteration."""
        computing = self.times.computing + self._updates()
        if self.forms.ranks == 1:
            return Estimate(self.run, computing, computing, {})
        staged = self.run.workflow == ScObr.name
        backward_end = self._backward(self._forward() + self.loss)
        end = self._summed(backward_end) if staged else backward_end[-1] + self._whole(self.what)
        end += self._update(self.buckets[0]) if staged else self._updates()
        return Estimate(self.run, end, computing, self.chosen)

    def _forward(self) -> float:
        """Return when the forward pass has ended, which begins with the broadcasts, or after them."""
        if not self.gives:
            return sum(self.times.forward)
        if self.run.workflow == ScB.name:
            return self._whole(self.gives) + sum(self.times.forward)
        sent = self.buckets[: max(1, len(self.buckets) - len(self._ahead()))]  # the first one's sum comes last
        arrivals = _lanes([0.0] * len(sent), [self._cost(self.down, self.gives, bucket) for bucket in sent])
        needed = {layer: end for bucket, end in zip(sent, arrivals, strict=True) for layer in bucket.layers}
        clock = 0.0
        for i, seconds in enumerate(self.times.forward):
            clock = max(clock, needed.get(i, 0.0)) + seconds
        return clock

    def _ahead(self) -> Sequence[int]:
        """Return the buckets whose broadcasts hide behind the backward pass, after their sums."""
        if self.run.workflow != ScObr.name:
            return ()
        sums = sum(max(cost.busy, cost.seconds / LANES) for cost in self._sums())
        sizes = [self._nbytes(bucket) for bucket in self.buckets]
        return buckets_ahead(sizes, share_ahead(sum(self.times.backward), sums))

    def _backward(self, clock: float) -> Sequence[float]:
        """Return when each bucket's gradients are complete, in the order of the sums; the pass ends with the last."""
        ends = {}
        for i in reversed(range(len(self.times.backward))):
            clock += self.times.backward[i]
            ends[i] = clock
        ready = [max(ends[layer] for layer in bucket.layers) for bucket in reversed(self.buckets)]
        return [*ready[:-1], clock]

    def _summed(self, ready: Sequence[float]) -> float:
        """Return when all buckets have been summed."""
        return max(_lanes(ready, self._sums()))

    def _sums(self) -> list[CollectiveTime]:
        return [self._cost(self.forms, self.what, bucket) for bucket in reversed(self.buckets)]

    def _whole(self, what: str) -> float:
        """Return the seconds of one message of all parameters, or of one for each bucket that has an owner."""
        forms = self.down if what == self.gives else self.forms
        sizes = [self._nbytes(bucket) for bucket in self.buckets]
        return sum(self._of(forms, what, nbytes).seconds for nbytes in (sizes if self.owned else [sum(sizes)]))

    def _cost(self, forms: ClosedForms, what: str, bucket: Bucket) -> CollectiveTime:
        return self._of(forms, what, self._nbytes(bucket))

    def _of(self, forms: ClosedForms, what: str, nbytes: int) -> CollectiveTime:
        numbers = self.run.broadcast_numbers if what == self.gives else self.run.gradient_numbers
        sent = max(1, round(nbytes * BYTES[numbers]))
        cost = self.chosen[what, nbytes] = forms.cost(what, sent)
        return cost

    def _nbytes(self, bucket: Bucket) -> int:
        elements: int = bucket.part.stop - bucket.part.start
        return elements * self.itemsize

    def _update(self, bucket: Bucket) -> float:
        """Return the seconds of a bucket's update, by each of its owners."""
        part = 1 / self.forms.ranks if self.run.owners == SLICES else 1.0
        return self.times.update * self._nbytes(bucket) / self.itemsize * part

    def _updates(self) -> float:
        """Return the seconds of all updates of the rank that has most of them."""
        seconds = [self._update(bucket) for bucket in self.buckets]
        ranks = self.forms.ranks if self.run.owners == SPREAD else 1
        return max(sum(seconds[first::ranks]) for first in range(min(ranks, len(seconds))))


def _lanes(ready: Sequence[float], costs: Sequence[CollectiveTime]) -> list[float]:
    """Return when each stage ends: it begins once it is ready, its lane is free, and the busiest rank's port is."""
    ends: list[float] = []
    port = 0.0
    for i, (time, cost) in enumerate(zip(ready, costs, strict=True)):
        begin = max(time, port, ends[i - LANES] if i >= LANES else 0.0)
        port = begin + cost.busy
        ends.append(begin + cost.seconds)
    return ends


def faster_computing(times: LayerTimes, factor: float) -> LayerTimes:
    """Return the times of layers that are computed `factor` times as fast."""
    forward, backward = ([each / factor for each in passes] for passes in (times.forward, times.backward))
    return replace(times, forward=forward, backward=backward)


def table(found: Sequence[Estimate]) -> Iterator[str]:
    """Yield a line for each estimate: workflow, sync, buckets, milliseconds, and those exposed."""
    yield f"{'workflow':<10}{'sync':<14}{'owners':<8}{'buckets':>8}{'ms':>12}{'exposed':>12}  algorithms"
    for one in found:
        names = sorted({f"{what} {cost.algorithm}" for (what, _), cost in one.chosen.items()})
        times = f"{1e3 * one.seconds:12.4g}{1e3 * one.exposed:12.4g}"
        buckets = "-" if one.run.workflow == ScB.name else one.run.bucket_bytes
        owners = one.run.owners if one.run.sync == "reduce-bcast" else "all"
        yield f"{one.run.workflow:<10}{one.run.sync:<14}{owners:<8}{buckets:>8}{times}  {', '.join(names)}"
