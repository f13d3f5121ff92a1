"""Simulate an iteration: real workflows and schedules on simulated ranks."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from collectives.model.network import LinkNetwork
from collectives.simulation.communicator import Choose, Chooser
from collectives.simulation.ranks import SimulatedRanks
from scaffe import models
from scaffe.compute import Compute
from scaffe.context import TRAIN, Context
from scaffe.engine import REFERENCE
from scaffe.errors import ScaffeError
from scaffe.net.net import Net
from scaffe.parallel.buckets import Bucket
from scaffe.parallel.drive import Helper
from scaffe.parallel.run import AUTO, Run
from scaffe.proto.files import read_net
from scaffe.simulation.capacity import check_capacity
from scaffe.simulation.choosing import chooser
from scaffe.simulation.clusters import DescribedCluster, find_cluster
from scaffe.simulation.layer_times import LayerTimes, layer_times
from scaffe.simulation.messages import check_messages
from scaffe.simulation.rank import SimulatedParameters
from scaffe.simulation.result import Iteration, Messages
from scaffe.simulation.training import SimulatedJob, SimulatedTraining
from scaffe.tools.benchmark import batch_size
from scaffe.training.replay import Profile

MOST_RANKS = 10_000  # each of which is a thread
CHUNK = 1 << 20  # bytes of an algorithm's messages where neither the run nor the model says


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
    choose: Choose | None = None,
) -> Iteration:
    """Return the mean of `iterations` iterations of a net on `ranks` ranks of a cluster.

    - `net`: a model's name, a prototxt file, or a built net; `batch`: images of each rank, by default the net's.
    - `run`: workflow, collectives and buckets, as in training. `drive` "auto" is the helper.
    - `profile`: the layers' times, of `scaffe time --profile`; without it the cluster's devices give them.
    - `times`: the layers' times themselves.
    - `factors`: of each rank's computing time, 1 by default.
    - `shown`: ranks whose spans are kept.
    - `choose`: what "auto" means, by a collective and its bytes; the fastest of the model's schedules by default.

    Raise ScaffeError for wrong arguments, for more ranks or messages than can be simulated, for a batch that the
    cluster's devices have no memory for, and where all times are 0;
    AlgorithmError for an algorithm that has no schedule.
    """
    if ranks < 1:
        raise ScaffeError(f"ranks is {ranks}; it must be at least 1")
    if ranks > MOST_RANKS:
        raise ScaffeError(f"{ranks} ranks are too many to simulate (most: {MOST_RANKS}); --best takes closed forms")
    run = replace(run, drive=Helper.name if run.drive == AUTO else run.drive)
    described = cluster if isinstance(cluster, DescribedCluster) else find_cluster(cluster)
    built = net if isinstance(net, Net) else build(net, batch)
    check_capacity(built, described)
    times = times or layer_times(built, described, profile)
    job = SimulatedJob(built, ranks, described, times, iterations, factors, shown)
    runs = [(one, _checked(job, one, choose)) for one in run.candidates.values()]  # before the first one takes minutes
    found = min((_simulate(job, one, shared) for one, shared in runs), key=lambda one: one.seconds)
    if not found.seconds:
        raise ScaffeError("an iteration takes no time: all times of its layers and messages are 0")
    return found


def build(net: str | os.PathLike[str], batch: int | None) -> Net:
    """Return the train net of a model's name or of a prototxt file, without its data's sources and its values."""
    if os.fspath(net) in models.MODELS:
        given = models.get(os.fspath(net)).train_val(batch=batch, data="input")
    elif not os.path.exists(net):
        raise ScaffeError(f"'{net}' is no file and no model; known models: {' '.join(models.MODELS)}")
    elif batch is not None:
        raise ScaffeError(f"{net}: its batch is the file's; give --batch with a model's name alone")
    else:
        given = read_net(net)
    compute = Compute(engine=REFERENCE)
    return Net(given, context=Context(TRAIN, compute=compute, handed={layer.name for layer in given.layer}))


def _checked(job: SimulatedJob, run: Run, choose: Choose | None) -> Chooser:
    """Return what the ranks of one run share. Raise ScaffeError where there are too many messages to simulate."""
    links = job.cluster.links
    shared = Chooser(links.group(job.size), choose or chooser(links, job.size), CHUNK)
    check_messages(job, run, shared)
    return shared


def _simulate(job: SimulatedJob, run: Run, shared: Chooser) -> Iteration:
    """Return the iteration of one run."""
    world = SimulatedRanks(job.size, LinkNetwork(job.cluster.links, shared.group, 1))
    packed = SimulatedParameters(job.net)
    ranks = [SimulatedTraining(job, run, rank, shared, packed) for rank in world.ranks]
    world.run(lambda rank: ranks[rank.number].train())
    return _mean(job, run, ranks, shared)


def _mean(job: SimulatedJob, run: Run, ranks: Sequence[SimulatedTraining], shared: Chooser) -> Iteration:
    """Return the means over the counted iterations."""
    ends = [max(rank.ends[k] for rank in ranks) for k in (-1 - job.iterations, -1)]
    workflow = ranks[0].workflow
    return Iteration(
        run,
        job.cluster.name,
        job.size,
        batch_size(job.net),
        (ends[1] - ends[0]) / job.iterations,
        sum(job.times.forward),
        sum(job.times.backward),
        job.times.update * _most_owned(workflow.buckets),
        _messages([rank.counts(0) for rank in ranks], job.iterations),
        _messages([rank.counts(1) for rank in ranks], job.iterations),
        ranks[0].packed.nbytes,
        {one.label(job.net): ranks[0].packed.data[one.part].nbytes for one in workflow.buckets},
        dict(shared.chosen),
        {rank.owner.number: rank.spans for rank in ranks[: job.shown]},
    )


def _most_owned(buckets: Sequence[Bucket]) -> int:
    """Return the parameters of the rank that owns most."""
    owned: Counter[int] = Counter()
    for bucket in buckets:
        owned[bucket.owner] += max(bucket.counts) if bucket.counts else bucket.part.stop - bucket.part.start
    return max(owned.values())


def _messages(counts: Sequence[tuple[float, float]], iterations: int) -> Messages:
    busy, exposed = ([one[k] / iterations for one in counts] for k in (0, 1))
    return Messages(fmean(busy), fmean(exposed), max(exposed))
