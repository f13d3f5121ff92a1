"""Simulate an iteration: real workflows and schedules on simulated ranks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from types import SimpleNamespace
from typing import Any

from collectives.model.network import LinkNetwork
from collectives.schedules.algorithms import Choice
from collectives.simulation.communicator import Chooser, SimulatedCommunicator
from collectives.simulation.ranks import SimulatedRank, SimulatedRanks
from scaffe import models
from scaffe.compute import Compute
from scaffe.context import TRAIN
from scaffe.engine import REFERENCE
from scaffe.errors import ScaffeError
from scaffe.monitor.spans import BETWEEN, ITERATION, LOSS, UPDATE, WAIT, Span
from scaffe.net import Net
from scaffe.parallel.buckets import suited_bytes
from scaffe.parallel.drive import Helper
from scaffe.parallel.iteration import iterate
from scaffe.parallel.meter import HANDLING
from scaffe.parallel.run import AUTO, Run
from scaffe.parallel.workflows.alone import Alone
from scaffe.parallel.workflows.workflow import Parts, Workflow, registered
from scaffe.setting import parse_bytes
from scaffe.simulation.choosing import chooser
from scaffe.simulation.clusters import DescribedCluster, find_cluster
from scaffe.simulation.drives import drives
from scaffe.simulation.layer_times import LayerTimes, of_device, of_profile
from scaffe.simulation.rank import (
    SimulatedEngine,
    SimulatedNet,
    SimulatedParameters,
    SimulatedRule,
    SimulatedWorld,
    small_message,
    updating,
)
from scaffe.tools.benchmark import batch_size
from scaffe.training.replay import Profile, load

BEFORE = 2  # iterations at least that are not counted: the first broadcasts all parameters
ORDERING = 2  # iterations after which broadcasts are ordered
CHUNK = 1 << 20  # bytes of an algorithm's messages where neither the run nor the model says
MAIN = "MainThread"


@dataclass(frozen=True)
class Messages:
    """Seconds of one kind of messages in an iteration: means over the ranks, and the worst rank's exposed ones.

    `busy`: at least one was in flight; `exposed`: computation waited for it.
    """

    busy: float
    exposed: float
    worst: float

    @property
    def hidden(self) -> float:
        """Seconds in which messages were in flight and computation did not wait."""
        return max(0.0, self.busy - self.exposed)


@dataclass(frozen=True)
class Iteration:
    """A simulated iteration, in the steady state.

    - `seconds`: its length; `forward`, `backward`: of a rank's passes; `update`: of all parameters.
    - `batch`: images of each rank; `nbytes`: of all parameters; `buckets`: bytes by bucket.
    - `chosen`: the algorithm of each collective, by (name, bytes).
    - `spans`: of each rank whose timeline was asked for.
    """

    run: Run
    cluster: str
    ranks: int
    batch: int
    seconds: float
    forward: float
    backward: float
    update: float
    propagation: Messages
    aggregation: Messages
    nbytes: int
    buckets: Mapping[str, int]
    chosen: Mapping[tuple[str, int], Choice]
    spans: Mapping[int, Sequence[Span]] = field(default_factory=dict, repr=False)

    @property
    def computing(self) -> float:
        """Seconds of both passes and the update: an iteration of a single rank."""
        return self.forward + self.backward + self.update

    @property
    def rate(self) -> float:
        """Images a second of all ranks."""
        return self.ranks * self.batch / self.seconds


def simulate_iteration(
    net: str | os.PathLike[str] | Net,
    ranks: int,
    cluster: str | os.PathLike[str] | DescribedCluster,
    run: Run = Run(reduce=AUTO),  # noqa: B008  frozen
    *,
    batch: int | None = None,
    profile: str | os.PathLike[str] | Profile | None = None,
    times: LayerTimes | None = None,
    iterations: int = 1,
    factors: Sequence[float] = (),
    shown: int = 0,
) -> Iteration:
    """Return the mean of `iterations` iterations of a net on `ranks` ranks of a cluster.

    - `net`: a model's name, a prototxt file, or a built net; `batch`: images of each rank, by default the net's.
    - `run`: workflow, collectives and buckets, as in training. `drive` "auto" is the helper.
    - `profile`: the layers' times, of `scaffe time --profile`; without it the cluster's devices give them.
    - `times`: the layers' times themselves.
    - `factors`: of each rank's computing time, 1 by default.
    - `shown`: ranks whose spans are kept.

    Raise ScaffeError for wrong arguments, AlgorithmError for an algorithm that has no schedule.
    """
    if ranks < 1:
        raise ScaffeError(f"ranks is {ranks}; it must be at least 1")
    run = replace(run, drive=Helper.name if run.drive == AUTO else run.drive)
    described = cluster if isinstance(cluster, DescribedCluster) else find_cluster(cluster)
    built = net if isinstance(net, Net) else build(net, batch)
    if times is None:
        given = load(profile) if isinstance(profile, (str, os.PathLike)) else profile
        times = of_profile(built, given) if given else of_device(built, described)
    job = _Job(built, ranks, described, times, iterations, factors, shown)
    return min((job.simulate(one) for one in run.candidates.values()), key=lambda one: one.seconds)


def build(net: str | os.PathLike[str], batch: int | None) -> Net:
    """Return the train net of a model's name or of a prototxt file, without its data's sources."""
    given: Any = net
    if os.fspath(net) in models.MODELS:
        given = models.get(os.fspath(net)).train_val(batch=batch, data="input")
    elif not os.path.exists(net):
        raise ScaffeError(f"'{net}' is no file and no model; known models: {' '.join(models.MODELS)}")
    elif batch is not None:
        raise ScaffeError(f"{net}: its batch is the file's; give --batch with a model's name alone")
    return Net(given, phase=TRAIN, compute=Compute(engine=REFERENCE))


@dataclass
class _Job:
    """What one simulation is made of."""

    net: Net
    size: int
    cluster: DescribedCluster
    times: LayerTimes
    iterations: int
    factors: Sequence[float]
    shown: int

    def simulate(self, run: Run) -> Iteration:
        """Return the iteration of one run."""
        links = self.cluster.links
        group = links.group(self.size)
        world = SimulatedRanks(self.size, LinkNetwork(links, group, 1))
        shared = Chooser(group, chooser(links, self.size), CHUNK)
        packed = SimulatedParameters(self.net)
        ranks = [_Rank(self, run, rank, shared, packed) for rank in world.ranks]
        world.run(lambda rank: ranks[rank.number].train())
        return self._iteration(run, ranks, shared)

    def _iteration(self, run: Run, ranks: Sequence[_Rank], shared: Chooser) -> Iteration:
        """Return the means over the counted iterations."""
        ends = [max(rank.ends[k] for rank in ranks) for k in (-1 - self.iterations, -1)]
        workflow = ranks[0].workflow
        return Iteration(
            run,
            self.cluster.name,
            self.size,
            batch_size(self.net),
            (ends[1] - ends[0]) / self.iterations,
            sum(self.times.forward),
            sum(self.times.backward),
            self.times.update * sum(bucket.part.stop - bucket.part.start for bucket in workflow.buckets),
            _messages([rank.counts(0) for rank in ranks], self.iterations),
            _messages([rank.counts(1) for rank in ranks], self.iterations),
            ranks[0].packed.nbytes,
            {one.label(self.net): ranks[0].packed.data[one.part].nbytes for one in workflow.buckets},
            dict(shared.chosen),
            {rank.owner.number: rank.spans for rank in ranks[: self.shown]},
        )


def _messages(counts: Sequence[tuple[float, float]], iterations: int) -> Messages:
    busy, exposed = ([one[k] / iterations for one in counts] for k in (0, 1))
    return Messages(fmean(busy), fmean(exposed), max(exposed))


class _Rank:
    """One rank's training."""

    def __init__(self, job: _Job, run: Run, owner: SimulatedRank, shared: Chooser, packed: SimulatedParameters):
        self.job, self.run, self.owner, self.shared, self.packed = job, run, owner, shared, packed
        self.ends: list[float] = []
        self.spans: list[Span] = []
        self._before: list[tuple[float, float]] = []

    def train(self) -> None:
        """Run the iterations that are not counted, then those that are."""
        job, self.workflow = self.job, self._workflow()
        if self.workflow.ordering is not None:
            self.workflow.ordering.ITERATIONS = ORDERING  # a simulated iteration has one time
        self.ends.append(self.owner.clock)
        while not self.workflow.is_settled:
            self._iterate()
        for _ in range(max(1, BEFORE + 1 - len(self.ends))):  # the last of them fills the pipeline
            self._iterate()
        self._meters = self.workflow.propagate.meter, self.workflow.aggregate.meter
        self._before = [(meter.busy, meter.exposed) for meter in self._meters]
        if self.owner.number < job.shown:
            self._record()
        for _ in range(job.iterations):
            self._iterate()
        self._after = [(meter.busy, meter.exposed) for meter in self._meters]
        self.workflow.propagate.sync()  # ends what is in flight, for its spans

    def counts(self, k: int) -> tuple[float, float]:
        """Return the busy and exposed seconds of one kind of messages in the counted iterations."""
        (busy, exposed), (busy_before, exposed_before) = self._after[k], self._before[k]
        busy -= busy_before
        return busy, min(busy, exposed - exposed_before)

    def _workflow(self) -> Workflow:
        """Return the workflow, on stand-ins."""
        job, owner = self.job, self.owner
        self.world = SimulatedWorld(owner, job.size, small_message(job.cluster, job.size))
        read = job.times.record_bytes / job.cluster.reading(job.size)
        factor = job.factors[owner.number] if owner.number < len(job.factors) else 1.0
        in_groups = job.size == 1 or self.run.drive == Helper.name
        self.engine = SimulatedEngine(owner, job.times, factor, read, in_groups)
        world: Any = self.world
        net: Any = SimulatedNet(job.net, self.packed, self.engine)
        rule: Any = SimulatedRule()
        update = updating(owner, job.times)
        if job.size == 1:
            return Alone(Parts(world, None, net, update, rule))
        comm: Any = SimulatedCommunicator(owner, self.shared)
        how = self.run.collective, self.run.how, self.run.how_down
        parts = Parts(world, comm, net, update, rule, self._bucket_bytes(), self.run.drive, *how)
        return registered()[self.run.workflow](replace(parts, all_drives=drives(owner)))

    def _bucket_bytes(self) -> float:
        """Return the most bytes of a bucket; "auto" those that suit the links."""
        if self.run.bucket_bytes != AUTO:
            return parse_bytes(self.run.bucket_bytes)
        links = self.job.cluster.links
        inside = self.job.size <= links.ranks_per_node
        alpha, beta = (links.alpha_in, links.beta_in) if inside else (links.alpha, links.beta)
        return suited_bytes(self.packed.nbytes, alpha, beta)

    def _iterate(self) -> None:
        begin, measured = self.owner.clock, self.packed.statistics

        def average() -> None:
            if measured.stop > measured.start and self.job.size > 1:
                self.world.allsums([0.0])

        statistics: Any = SimpleNamespace(average=average)
        iterate(self.workflow, statistics, 1, self._agree, self.world.record)
        self.owner.catch_up()
        if self._keeps:
            self.spans.append(Span(ITERATION, f"iteration {len(self.ends)}", begin, self.owner.clock, MAIN))
        self.workflow.took()
        self.ends.append(self.owner.clock)

    def _agree(self, loss: object) -> None:
        """Sum the loss over all ranks."""
        begin = self.owner.clock
        if self.job.size > 1:
            self.world.allsums([0.0])
        if self._keeps:
            self.spans.append(Span(WAIT, LOSS, begin, self.owner.clock, MAIN, LOSS))

    # Spans.

    _keeps = False

    def _record(self) -> None:
        """Keep spans from now on."""
        self._keeps, self.engine.spans = True, self.spans
        self._labels = [bucket.label(self.job.net) for bucket in self.workflow.buckets]
        for meter in self._meters:
            meter.note = self._note

    def _note(self, kind: str, bucket: int, begin: float, end: float, lane: int | None) -> None:
        name = self._labels[bucket] if bucket >= 0 else BETWEEN if bucket == HANDLING else "all"
        if lane is not None:
            self.spans.append(Span(kind, name, begin, end, f"{kind}, lane {lane}"))
        elif kind == UPDATE:
            self.spans.append(Span(UPDATE, name, begin, end, MAIN))
        else:
            self.spans.append(Span(WAIT, name, begin, end, MAIN, kind))
