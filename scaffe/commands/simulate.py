"""scaffe simulate."""

from __future__ import annotations

import argparse
from dataclasses import fields

from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command, add_settings
from scaffe.commands.running import alone
from scaffe.errors import ScaffeError
from scaffe.files.outputs import check_output
from scaffe.parallel.run import Run
from scaffe.simulation import report, rivals
from scaffe.simulation.capacity import check_capacity
from scaffe.simulation.clusters import DescribedCluster, find_cluster, names
from scaffe.simulation.estimate import best, table
from scaffe.simulation.iteration import build, simulate_iteration
from scaffe.simulation.layer_times import layer_times

RANK = 15
SETTINGS = "workflow", "sync", "reduce", "chain_size", "chunk_bytes", "bucket_bytes", "drive", "owners"
SHOWN = 16  # ranks in a timeline by default
MOST_ITERATIONS = 1000  # which are alike
MOST_RANKS = 1_000_000_000  # also by closed forms


def add(top: Parser) -> None:
    """Add `simulate`."""
    text = "Predict an iteration on a described cluster: its length, and how much of the messages is hidden."
    command = add_command(top, "simulate", lambda a: alone(lambda: _print(a)), text)
    command.flag("net", required=True, metavar="NAME", help="a model of scaffe models, or a net prototxt")
    command.flag("ranks", type=int, required=True, metavar="N", help="ranks, which fill node after node")
    command.flag("cluster", required=True, metavar="NAME", help=f"{', '.join(names())}, or FILE.toml")
    command.flag("batch", type=int, metavar="N", help="images of each rank [the model's]")
    command.flag("total", type=int, metavar="N", help="images of all ranks together, in place of --batch")
    command.flag("profile", metavar="FILE.json", help="layer times of scaffe time --profile [the cluster's devices]")
    command.flag("timeline", metavar="OUT.json", help="write a timeline, for scaffe timeline")
    command.flag("shown", type=int, metavar="N", help=f"ranks in the timeline [{SHOWN}]")
    command.flag("best", action="store_true", help="compare workflows, syncs and buckets by closed forms, at any N")
    command.flag("iterations", type=int, metavar="N", help="iterations to take the mean of [1]")
    add_settings(command, Run, *SETTINGS)


def _print(a: argparse.Namespace) -> None:
    for name in ("ranks", "batch", "total", "iterations", "shown"):
        if (given := getattr(a, name)) is not None and given < 1:
            raise ScaffeError(f"--{name} must be 1 or more, got {given}")
    if a.ranks > MOST_RANKS:
        raise ScaffeError(f"--ranks must be {MOST_RANKS} or less, got {a.ranks}")
    if (a.iterations or 1) > MOST_ITERATIONS:
        raise ScaffeError(f"--iterations must be {MOST_ITERATIONS} or less, since all are alike; got {a.iterations}")
    given = {f.name: getattr(a, f.name) for f in fields(Run) if f.name in SETTINGS}
    run = Run(**{name: value for name, value in given.items() if value is not None})
    run.check_reduce()
    cluster = find_cluster(a.cluster)
    if a.timeline:
        check_output("--timeline", a.timeline, [a.net, a.cluster, a.profile])
    if a.best:
        return _print_best(a, cluster)
    found = simulate_iteration(
        a.net,
        a.ranks,
        cluster,
        run,
        batch=_batch(a),
        profile=a.profile,
        iterations=a.iterations or 1,
        shown=min(a.shown or SHOWN, a.ranks) if a.timeline else 0,
    )
    for line in report.lines(found, cluster):
        print(line)
    if a.timeline:
        report.write_timeline(found, a.timeline)
        print(f"Timeline of {len(found.spans)} ranks in {a.timeline}; scaffe timeline {a.timeline} summarises it")


def _print_best(a: argparse.Namespace, cluster: DescribedCluster) -> None:
    """Print what an iteration takes by each way to run it, the fastest first."""
    if given := next((name for name in (*SETTINGS, "timeline", "shown", "iterations") if getattr(a, name)), ""):
        raise ScaffeError(f"--best tries all workflows, and writes no timeline; leave --{given.replace('_', '-')} out")
    net = build(a.net, _batch(a))
    check_capacity(net, cluster)
    found = best(net, a.ranks, cluster, layer_times(net, cluster, a.profile))
    print(f"{a.ranks} rank(s) of {cluster.name}, by closed forms; alone a rank takes {1e3 * found[0].computing:.4g} ms")
    for line in (*table(found), *(rivals.lines(cluster.links, a.ranks, net.packed.nbytes) if a.ranks > 1 else ())):
        print(line)


def _batch(a: argparse.Namespace) -> int | None:
    if a.batch and a.total:
        raise ScaffeError("--batch and --total say two things; give one of them")
    if a.total and a.total % a.ranks:
        raise ScaffeError(f"--total {a.total} is no multiple of {a.ranks} ranks; give --batch")
    batch: int | None = a.total // a.ranks if a.total else a.batch
    return batch
