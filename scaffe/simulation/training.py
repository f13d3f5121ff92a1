"""SimulatedTraining: one simulated rank's iterations, with a real workflow on the rank's stand-ins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from collectives.simulation.communicator import Chooser, SimulatedCommunicator
from collectives.simulation.ranks import SimulatedRank
from scaffe.monitor.spans import BETWEEN, ITERATION, LOSS, UPDATE, WAIT, Span
from scaffe.net.net import Net
from scaffe.parallel.drive import Helper
from scaffe.parallel.iteration import iterate
from scaffe.parallel.meter import HANDLING
from scaffe.parallel.run import Run
from scaffe.parallel.workflows.alone import Alone
from scaffe.parallel.workflows.workflow import Workflow, WorkflowParts, registered
from scaffe.simulation.clusters import DescribedCluster
from scaffe.simulation.drives import drives
from scaffe.simulation.layer_times import LayerTimes
from scaffe.simulation.rank import (
    SimulatedEngine,
    SimulatedNet,
    SimulatedParameters,
    SimulatedRule,
    SimulatedWorld,
    bucket_bytes,
    small_message,
    updating,
)

BEFORE = 2  # iterations at least that are not counted: the first begins without broadcasts
ORDERING = 2  # iterations after which broadcasts are ordered
MAIN = "MainThread"


@dataclass(frozen=True)
class SimulatedJob:
    """What the ranks of a simulation have in common: see `simulate_iteration`."""

    net: Net
    size: int
    cluster: DescribedCluster
    times: LayerTimes
    iterations: int
    factors: Sequence[float]
    shown: int


class SimulatedTraining:
    """One rank's training."""

    def __init__(self, job: SimulatedJob, run: Run, owner: SimulatedRank, shared: Chooser, packed: SimulatedParameters):
        self.job, self.run, self.owner, self.shared, self.packed = job, run, owner, shared, packed
        self.ends: list[float] = []
        self.spans: list[Span] = []
        self._before: list[tuple[float, float]] = []

    def train(self) -> None:
        """Run the iterations that are not counted, then those that are."""
        job, self.workflow = self.job, self._workflow()
        if self.workflow.ordering is not None:
            self.workflow.ordering.ITERATIONS = ORDERING  # a simulated iteration has one time
        self.workflow.propagate.known()  # no broadcast of all parameters, which belongs to no later iteration
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
            return Alone(WorkflowParts(world, None, net, update, rule))
        comm: Any = SimulatedCommunicator(owner, self.shared)
        how = self.run.collective, self.run.how, self.run.how_down
        most = bucket_bytes(self.run, self.packed.nbytes, job.cluster.links, job.size)
        parts = WorkflowParts(world, comm, net, update, rule, most, self.run.drive, *how, owners=self.run.owners)
        return registered()[self.run.workflow](replace(parts, all_drives=drives(owner)))

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
