"""Best designs: how each paper trains on its cluster, and the best that this project has there, by closed forms.

Where a paper ends at one machine it has no design between machines, and none is made up: there the best stands alone.
Inside one machine see best_inside.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import floor

import best_inside
import s_caffe_8
import shapes
import swcaffe_10
from best_timed import NDR, Timed, row, value
from figure import Data

import scaffe
from collectives.schedules.algorithms import LEADERS
from scaffe.parallel.run import Run
from scaffe.simulation import find_cluster
from scaffe.simulation.closed_forms import EXCHANGES, S_CAFFE, ClosedForms
from scaffe.simulation.clusters import DescribedCluster
from scaffe.simulation.estimate import Estimate, best, estimate, faster_computing
from scaffe.simulation.layer_times import LayerTimes, of_device

COUNTS = 1024, 100_000
PER_IMAGE = 32  # images over which the buffers of gradients are counted


@dataclass(frozen=True)
class Way:
    """How ranks of a cluster train: a run, and the algorithms up and down."""

    run: Run
    up: tuple[str, ...]
    down: tuple[str, ...]
    words: str


@dataclass(frozen=True)
class Design:
    """A paper's net, each rank's batch, its cluster, the ranks that it had there, and its way, if it has one.

    `memory` is the name of the input with the bytes of a rank; `fitted` has the rate between nodes that swCaffe's
    speedups imply.
    """

    title: str
    net: str
    batch: int
    cluster: str
    size: int
    memory: str
    way: Way | None = None
    fitted: bool = False


BY_LAYER = Run("SC-OBR", reduce="auto", bucket_bytes="0")
SC_OBR_HR = Way(BY_LAYER, S_CAFFE, ("binomial",), "SC-OBR by layer, hierarchical reduce")
RENUMBERED = Way(
    Run("SC-B", "allreduce", reduce="auto"), ("halving",), ("halving",), "renumbered allreduce, nothing hidden"
)
NUMA = Design("NUMA-Caffe", "alexnet", 64, "", 4, "")
PARAX = Design("ParaX", "resnet50", 896, "8280", 2, "socket")
GOOGLENET = Design("S-Caffe", "googlenet", 8, "cluster-a", 160, "K-80", SC_OBR_HR)
SINGLE = Design("SingleCaffe", "cifar10_full", 100, "tianhe", 1, "Tianhe-2")
SWCAFFE = Design("swCaffe", "alexnet", 256, "taihulight", 1024, "SW26010", RENUMBERED)
DESIGNS = NUMA, PARAX, GOOGLENET, SINGLE, SWCAFFE
FITTED_RATE = replace(SWCAFFE, title="swCaffe, fitted rate", fitted=True)
BATCHES = (GOOGLENET, 2), (GOOGLENET, 32), (FITTED_RATE, 128), (FITTED_RATE, 64)  # beside the designs' own


@cache
def net(name: str, batch: int) -> scaffe.Net:
    """Return a net for its shapes and parameters."""
    with shapes.built(name, training=True, batch=batch) as made:
        return made


def footprint(name: str, batch: int, instances: int = 1) -> float:
    """Return the bytes of training: blobs, their gradients' buffers, weights, history, gradients of each instance."""
    image = shapes.activations(name) + shapes.pooled(name, PER_IMAGE) / PER_IMAGE
    return batch * image + (2 + instances) * shapes.parameters(name)


def batch_on(design: Design, name: str) -> int:
    """Return a rank's batch: the paper's, on a present cluster halved until it fits the device."""
    batch = design.batch
    while name == NDR and footprint(design.net, batch) > value("H100: memory"):
        batch //= 2
    return batch


def machine(design: Design, name: str) -> DescribedCluster:
    """Return a described cluster, with swCaffe's fitted rate where the design has it."""
    cluster = find_cluster(name)
    return cluster.with_(rate=fitted_rate()) if design.fitted and name == design.cluster else cluster


@cache
def fitted_rate() -> float:
    """Return the bytes a second between nodes with which AlexNet's exchange takes what swcaffe-10 fits.

    An exchange takes a + b / rate seconds.
    """
    figure, cluster = swcaffe_10.FIGURE, find_cluster("taihulight")
    nbytes = int(figure.value("AlexNet's parameters"))
    fast, slow = (exchange_at(cluster.with_(rate=rate), nbytes) for rate in (1e9, 0.5e9))
    b = (slow - fast) * 1e9
    return b / (figure.value("AlexNet's exchange") - (fast - b / 1e9))


def exchange_at(cluster: DescribedCluster, nbytes: int) -> float:
    """Return the seconds of a renumbered allreduce over 1,024 nodes."""
    return ClosedForms(cluster.links, swcaffe_10.NODES).exchange("halving", nbytes).seconds


def times_of(design: Design, name: str) -> LayerTimes:
    """Return the layers' seconds on a machine; on ParaX's with an instance on each core, as parax-13 simulates it."""
    times = of_device(net(design.net, batch_on(design, name)), find_cluster(name))
    if design.title != PARAX.title or name != PARAX.cluster:
        return times
    return faster_computing(times, times.computing / best_inside.parax_seconds())


def error_of(one: Estimate, cluster: DescribedCluster) -> float:
    """Return an estimate's error against driven ranks, as docs/simulate.md has it."""
    links = cluster.links
    names = {cost.algorithm.removeprefix(LEADERS) for cost in one.chosen.values()}
    trees = "error, trees, slow additions" if links.gamma >= links.beta else "error, trees"
    error = value("error, allreduce" if names <= set(EXCHANGES) else trees)
    return error if one.run.workflow == "SC-B" else max(error, value("error, overlap"))


def described(one: Estimate) -> str:
    """Return a way to run in words."""
    names = sorted({cost.algorithm for cost in one.chosen.values()})
    size = "a bucket for each layer" if one.run.bucket_bytes == "0" else f"buckets of {one.run.bucket_bytes}"
    buckets = "" if one.run.workflow == "SC-B" else f", {size}"
    return f"{one.run.workflow} {one.run.sync} by {' and '.join(names)}{buckets}"


def timed(one: Estimate, cluster: DescribedCluster) -> Timed:
    """Return an estimate with its error."""
    return Timed(one.seconds, described(one), error_of(one, cluster))


def on(design: Design, name: str, ranks: int, times: LayerTimes) -> Data:
    """Return the row of a design on a cluster."""
    cluster, made = machine(design, name), net(design.net, batch_on(design, name))
    found = best(made, ranks, cluster, times)[0]
    own = None
    if design.way:
        up, down = (ClosedForms(cluster.links, ranks, names) for names in (design.way.up, design.way.down))
        theirs = estimate(made, cluster, design.way.run, times, up, down)
        found = min(found, theirs, key=lambda one: one.seconds)
        own = replace(timed(theirs, cluster), how=design.way.words)
    devices = int(cluster["nodes"] * cluster["devices"])
    return row(design.title, name, ranks, own, timed(found, cluster), found.computing, devices) | {
        "net": design.net,
        "batch": batch_on(design, name),
        "kind": "weak",
    }


def rows() -> Iterator[Data]:
    """Yield a row for each design, machine and number of ranks."""
    yield from best_inside.rows()
    for design in (*DESIGNS, FITTED_RATE):
        for name in (design.cluster, NDR)[: 1 if design.fitted else 2]:
            sizes = [design.size] if name == design.cluster and COUNTS[0] > design.size > 2 else []
            for ranks in (*sizes, *COUNTS) if name else ():
                yield on(design, name, ranks, times_of(design, name))
    yield from divided()
    for design, batch in BATCHES:
        other = replace(design, batch=batch)
        yield on(other, other.cluster, COUNTS[0], times_of(other, other.cluster)) | {"kind": "batch"}


def divided() -> Iterator[Data]:
    """Yield S-Caffe's rows with its whole batch divided, by the computing that s-caffe-8 fits, to an image a rank."""
    all_images = s_caffe_8.FIGURE.value("computing")
    times = times_of(GOOGLENET, GOOGLENET.cluster)
    most = floor(all_images / (times.computing / GOOGLENET.batch))
    for ranks in (GOOGLENET.size, most):
        part = faster_computing(times, times.computing / (all_images / ranks))
        found = on(GOOGLENET, GOOGLENET.cluster, ranks, part)
        yield found | {"kind": "divided", "batch": round(most / ranks, 1)}
