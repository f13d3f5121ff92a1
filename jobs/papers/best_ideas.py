"""Best, ideas: what each idea of the five papers gains on a present cluster, alone and in the best way to train.

Alone: over the plain way, which sums over a binomial tree, then broadcasts, and hides nothing. Missing: how much longer
the best way takes without the idea. A sentence says that an idea pays only where that is beyond the model's error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from best_designs import COUNTS, DESIGNS, Design, batch_on, error_of, net, times_of
from best_timed import NDR, Timed, bounds, is_beyond, value
from figure import Data

from collectives.schedules.algorithms import LEADERS
from scaffe.parallel.run import Run
from scaffe.simulation import find_cluster
from scaffe.simulation.closed_forms import SEARCHED
from scaffe.simulation.clusters import DescribedCluster
from scaffe.simulation.estimate import TRIED, best

RANKS = COUNTS[-1]
TREE = ("binomial",)
CHAINS = tuple(name for name in SEARCHED if name.removeprefix(LEADERS).startswith(("chain", "cb-")))
HALVING = "halving", f"{LEADERS}halving"
Stays = Callable[[Run], bool]


def everything(run: Run) -> bool:
    """Return True: any run stays."""
    return True


def is_plain(run: Run) -> bool:
    """Return whether a run hides nothing, and sums at one root."""
    return run.workflow == "SC-B" and run.sync == "reduce-bcast"


@dataclass(frozen=True)
class Idea:
    """An idea: runs and algorithms of the plain way with it, and those of the best way without it."""

    name: str
    paper: str
    with_it: Stays
    names: Sequence[str]
    without: Stays
    others: Sequence[str] = SEARCHED


def _rest(*names: str) -> tuple[str, ...]:
    return tuple(name for name in SEARCHED if name not in names)


IDEAS = (
    Idea(
        "overlapped broadcast", "S-Caffe", lambda run: run.workflow == "SC-OB", TREE,
        lambda run: is_plain(run) or run.sync == "allreduce",
    ),
    Idea(
        "overlapped reduce", "S-Caffe", lambda run: run.workflow == "SC-OBR" and run.sync == "reduce-bcast", TREE,
        lambda run: run.workflow != "SC-OBR",
    ),
    Idea("hierarchical reduce", "S-Caffe", is_plain, (*TREE, *CHAINS), everything, _rest(*CHAINS)),
    Idea(
        "allreduce by halving", "swCaffe", lambda run: run.workflow == "SC-B" and run.sync == "allreduce",
        ("halving",), everything, _rest(*HALVING),
    ),
    Idea("buckets of many megabytes", "none", is_plain, TREE, lambda run: run.bucket_bytes in ("0", "1M", "4M")),
)  # fmt: skip
SLICES = "each rank of a node sends its slice of the sum"
SERVER = "sums in slices, not at one server"


def fastest(design: Design, cluster: DescribedCluster, ranks: int, stays: Stays, names: Sequence[str]) -> Timed:
    """Return the fastest of the runs that stay, by these algorithms."""
    made, times = net(design.net, batch_on(design, NDR)), times_of(design, NDR)
    one = best(made, ranks, cluster, times, [run for run in TRIED if stays(run)], names)[0]
    return Timed(one.seconds, "", error_of(one, cluster))


def gains(design: Design, ranks: int) -> Iterator[Data]:
    """Yield what each idea gains alone, and in the best way: the gain, and its least and most by the model's error."""
    cluster = find_cluster(NDR)
    sliced = cluster.with_(leaders=cluster["devices"])
    plain = fastest(design, cluster, ranks, is_plain, TREE)
    ours = fastest(design, cluster, ranks, everything, SEARCHED)
    where: Data = {"system": design.title, "ranks": ranks}
    for idea in IDEAS:
        alone = bounds(plain, fastest(design, cluster, ranks, idea.with_it, idea.names))
        missing = bounds(fastest(design, cluster, ranks, idea.without, idea.others), ours)
        yield where | {"idea": idea.name, "alone": alone, "missing": missing}
    alone = bounds(plain, fastest(design, sliced, ranks, is_plain, (*TREE, f"{LEADERS}binomial")))
    missing = bounds(ours, fastest(design, sliced, ranks, everything, SEARCHED))
    yield where | {"idea": SLICES, "alone": alone, "missing": missing}


def one_server(design: Design) -> Data:
    """Return how much longer an iteration of one node takes with one server than with slices, nothing hidden."""
    cluster = find_cluster(NDR)
    nbytes, g = net(design.net, batch_on(design, NDR)).packed.nbytes, int(cluster["devices"])
    one, sliced = (
        Timed(times_of(design, NDR).computing + exchanged(cluster, part * nbytes), "", value("error, trees"))
        for part in (1, 1 / g)
    )
    return {"system": design.title, "ranks": g, "idea": SERVER, "alone": bounds(one, sliced)}


def exchanged(cluster: DescribedCluster, nbytes: float) -> float:
    """Return the seconds in which a rank gets so many bytes from each other rank of its node, adds, and sends them."""
    others = int(cluster["devices"]) - 1
    return 2 * others * cluster["alpha_in"] + others * nbytes * (2 / cluster["rate_in"] + 1 / cluster["add"])


def reading(design: Design, ranks: int) -> Data:
    """Return how many times as many bytes all ranks read as the adapters of one node can send on to them."""
    cluster = find_cluster(NDR)
    seconds = fastest(design, cluster, ranks, everything, SEARCHED).seconds
    read = ranks * times_of(design, NDR).record_bytes / seconds
    return {"system": design.title, "ranks": ranks, "times": read / (cluster["rate"] * cluster["adapters"])}


def updating(design: Design) -> float:
    """Return the share of the best iteration that an update of all parameters takes."""
    packed = net(design.net, batch_on(design, NDR)).packed
    whole: float = times_of(design, NDR).update * packed.nbytes / packed.flat.itemsize
    return whole / fastest(design, find_cluster(NDR), RANKS, everything, SEARCHED).seconds


def model() -> Data:
    """Return what each idea gains, and the numbers that say whether the others can gain at all."""
    return {
        "gains": [gain for design in DESIGNS for ranks in COUNTS for gain in gains(design, ranks)],
        "servers": [one_server(design) for design in DESIGNS],
        "reading": [reading(design, ranks) for design in DESIGNS for ranks in COUNTS],
        "update": max(map(updating, DESIGNS)),
        "oversubscription": find_cluster(NDR)["oversubscription"],
    }


def sentences(found: Data) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each idea, the paper, and what the numbers say of it."""
    papers = {idea.name: idea.paper for idea in IDEAS} | {SLICES: "SingleCaffe"}
    for name, paper in papers.items():
        yield name, paper, verdict([gain for gain in found["gains"] if gain["idea"] == name])
    times = found["oversubscription"]
    same = "moot: the tree is not over-subscribed, so that both numberings take the same time"
    yield (
        "ranks numbered by supernodes",
        "swCaffe",
        same if times == 1 else f"links across take {times:g} times as long",
    )
    yield "parallel readers", "S-Caffe", of_reading(found["reading"])
    yield SERVER, "SingleCaffe", verdict(found["servers"])
    yield "weights that a node's ranks share", "ParaX", "moot: each GPU computes with weights in its own memory"
    yield "a solver for each NUMA domain", "NUMA-Caffe", "moot: no cores compute, and a GPU's memory is one domain"
    yield "an instance on each core", "ParaX", "moot: no cores compute"
    yield "sharded update", "none", f"not in this project; it would save {found['update']:.1%} of an iteration at most"


def verdict(each: Sequence[Data]) -> str:
    """Return what an idea's gains say, by the model's error."""
    alone = [(gain["alone"][0], gain) for gain in each if is_beyond(gain["alone"])]
    missing = [(gain["missing"][0], gain) for gain in each if "missing" in gain and is_beyond(gain["missing"])]
    if missing and each[0]["idea"] == SLICES:
        return f"would pay: GPUs' arrays have one leader a node, and the best way takes {_most(missing)}"
    if missing:
        return f"pays: without it the best way takes {_most(missing)}"
    if alone and "missing" in each[0]:
        return f"pays alone: the plain way takes {_most(alone)}; but the best way needs it no more"
    return f"pays: without it an iteration takes {_most(alone)}" if alone else "gains nothing beyond the model's error"


def of_reading(each: Sequence[Data]) -> str:
    """Return what the bytes that ranks read say."""
    few, many = ([one["times"] for one in each if one["ranks"] == ranks] for ranks in COUNTS)
    text = f"all ranks read {min(few):.2g} to {max(few):.2g} times what one node can send on at {COUNTS[0]:,} ranks, "
    text += f"{min(many):.3g} to {max(many):.3g} times at {COUNTS[1]:,}"
    return f"{'pay' if max(many) > 1 else 'are not needed'}: {text}"


def _most(gains: Sequence[tuple[float, Data]]) -> str:
    top, where = max(gains, key=lambda pair: pair[0])
    nets = len({gain["system"] for _, gain in gains})
    return f"up to {top:.2f} times as long ({where['system']}, {where['ranks']:,} ranks; {nets} of {len(DESIGNS)} nets)"
