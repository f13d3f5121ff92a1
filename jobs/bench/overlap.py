"""Milliseconds of an iteration in the steady state by workflows that take turns; overlap.sh starts the ranks.

    mpirun -n P python jobs/bench/overlap.py NET [--batch N] [--profile FILE.json|real|flops:RATE|share:S] [--rounds N]
                                             [--width W] [--pairs N] [--pin] [--link-rate]

With a profile layers take its times (scaffe's replay). `flops:RATE` makes a profile from the layers' operations at RATE
a second, backward twice the forward; `share:S` first measures SC-B's messages without computing, and sets the RATE at
which they take the share S of an iteration; `ratio:R` first measures the last of --runs without computing, and sets the
RATE at which that takes R times as long as computing. With `real` the CPU computes. --width W gives layers W times as
many outputs: W squared times the bytes and operations, in the net's proportions. Rows:

- computing alone: one rank without others, with its update,
- communicating alone: SC-OBR without computing and updates, and the same by allreduce or in slices if a workflow has
  them,
- each workflow. "DDP's form" is an allreduce under the backward pass in buckets of 25 MB, as PyTorch's DDP has.

Columns:

- median, least and most ms over the rounds,
- busy: the share of the time in which the busiest rank used a core,
- sums: of rank 0's iteration the ms in which it waits for the sums of gradients; rest: the others,
- ratios to SC-B, and to the greater of computing alone and communicating alone,
- samples per second of all ranks,
- hidden: computing alone plus communicating alone, less the iteration, as a share of communicating alone. It can't
  exceed what `busy` leaves.

--pairs N runs N pairs of SC-B and another workflow, and prints the median of their ratios with a bootstrap interval.
--no-talking leaves communicating alone out, and with it what is compared with it.
--link-rate only prints the rate of a link at which communicating takes half of SC-B's iteration.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

import numpy as np
from iteration import zoo
from narrow import narrowed
from rank import take_precedence
from steady import Spent, Steps, make_solver, steady

from scaffe import Net
from scaffe.parallel.buckets import Bucket
from scaffe.parallel.maker import make_workflow
from scaffe.parallel.run import Run
from scaffe.parallel.workflows.alone import Alone
from scaffe.parallel.workflows.workflow import Workflow, WorkflowParts
from scaffe.parallel.world import World, open_world
from scaffe.setting import parse_bytes
from scaffe.tools import benchmark
from scaffe.training.replay import Profile, Replay, load
from scaffe.training.solver import Solver

RUNS = {
    "SC-B": Run(reduce="mpi"),
    "SC-OB": Run("SC-OB", reduce="mpi", drive="helper"),
    "SC-OBR": Run("SC-OBR", reduce="mpi", drive="helper"),
    "SC-B:auto": Run(reduce="auto"),
    "SC-OB:auto": Run("SC-OB", reduce="auto", drive="helper"),
    "SC-OBR:auto": Run("SC-OBR", reduce="auto", drive="helper"),
    "SC-OBR:chain": Run("SC-OBR", reduce="chain", drive="helper"),
    "SC-OBR:cb-4": Run("SC-OBR", reduce="cb-4", drive="helper"),
    "SC-OBR:auto:hook": Run("SC-OBR", reduce="auto", drive="hook"),
    "allreduce:auto": Run("SC-OBR", "allreduce", reduce="auto", drive="helper"),
    "allreduce:auto:hook": Run("SC-OBR", "allreduce", reduce="auto", drive="hook"),
}
OTHERS = {  # other systems' exchanges, and other owners: only where --runs names them
    "SC-B:binomial": Run(reduce="binomial"),
    "SC-B:flat": Run(reduce="flat"),  # of a parameter server: all gradients to the root, all parameters from it
    "SC-B:halving": Run(sync="allreduce", reduce="halving"),
    "SC-B:ring": Run(sync="allreduce", reduce="ring"),
    "SC-OBR:ring": Run("SC-OBR", "allreduce", reduce="ring", drive="helper"),
    "DDP's form": Run("SC-OBR", "allreduce", reduce="auto", drive="helper", bucket_bytes="25M"),
    "DDP's form:bf16": Run(
        "SC-OBR", "allreduce", reduce="auto", drive="helper", bucket_bytes="25M", gradient_numbers="bf16"
    ),
    "spread": Run("SC-OBR", reduce="auto", drive="helper", owners="spread"),
    "slices": Run("SC-OBR", reduce="auto", drive="helper", owners="slices"),
    "slices:hook": Run("SC-OBR", reduce="auto", drive="hook", owners="slices"),
    "slices:bf16": Run("SC-OBR", reduce="auto", drive="helper", owners="slices", gradient_numbers="bf16"),
    "allreduce:bf16": Run("SC-OBR", "allreduce", reduce="auto", drive="helper", gradient_numbers="bf16"),
}
KNOWN = RUNS | OTHERS

ALONE = "computing alone"
TALKING = {  # by the collective that sums gradients: the row without computing, and the run it has
    "reduce": ("communicating alone", "SC-OBR:auto"),
    "allreduce": ("allreduce alone", "allreduce:auto"),
    "reduce_scatter": ("slices alone", "slices"),
}


class Round(NamedTuple):
    """What an iteration of a row takes in a round.

    ms on the slowest rank, the greatest share of a core that a rank used, and ms of rank 0: waiting for the sums of
    gradients, and the others.
    """

    ms: float
    busy: float
    sums: float
    rest: float


Rounds = dict[str, list[Round]]  # by row, an entry for each round


def by_operations(net: Net, rate: float) -> Profile:
    """Return a profile in which convolutions and inner products run at `rate` operations a second."""
    forward = [benchmark.layer_operations(layer, top) / rate for layer, top in zip(net.layers, net.tops, strict=True)]
    return Profile({layer.name: (t, 2 * t) for layer, t in zip(net.layers, forward, strict=True)})


def computing_of_share(share: float, updating: float, exchanging: float) -> float:
    """Return the seconds of computing beside which messages take `share` of SC-B's iteration.

    `updating`, `exchanging`: seconds of an update alone, and of SC-B's iteration without computing. Raise ValueError
    where updates alone are too long.
    """
    computing = (exchanging - updating) * (1 - share) / share - updating
    if computing <= 0:
        raise ValueError(f"messages take {exchanging - updating:.3g} s, updates {updating:.3g} s: no share of {share}")
    return computing


def rate_of_share(share: float, solver: Solver, exchange: Steps, a: argparse.Namespace) -> float:
    """Return the operations a second at which SC-B's messages, those of `exchange`, take `share` of its iteration."""
    both = {ALONE: steady(solver, alone(solver), a.iterations), "SC-B:auto": exchange}
    rounds = measure(solver.world, {name: without_computing(solver, step) for name, step in both.items()}, a)
    computing = computing_of_share(share, *(1e-3 * middle(each) for each in rounds.values()))
    return operations(solver.net) / computing


def rate_of_ratio(ratio: float, solver: Solver, exchange: Steps, a: argparse.Namespace) -> float:
    """Return the operations a second at which the messages of `exchange` alone take `ratio` of computing alone."""
    rounds = measure(solver.world, {"": without_computing(solver, exchange)}, a)
    return operations(solver.net) * ratio / (1e-3 * middle(rounds[""]))


def operations(net: Net) -> float:
    """Return the operations of a forward and a backward pass, the backward twice the forward."""
    return sum(map(sum, by_operations(net, 1.0).layers.values()))


def alone(solver: Solver) -> Workflow:
    """Return the workflow of a rank without others: it computes and updates."""
    workflow = Alone(WorkflowParts(solver.world, None, solver.net, solver.parts.update, solver.parts.rule))
    workflow.propagate.everywhere, workflow.propagate.stale = True, False
    return workflow


def arguments() -> argparse.Namespace:
    """Return the command line's values."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("net", help="of the model zoo")
    parser.add_argument("--batch", type=int, default=32, help="samples of each rank (default: %(default)s)")
    parser.add_argument(
        "--profile", default="flops:5e12", help="FILE.json, real, flops:RATE, share:S or ratio:R (default: %(default)s)"
    )
    parser.add_argument("--width", type=float, default=1.0, help="of the layers (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each row (default: %(default)s)")
    parser.add_argument("--iterations", type=int, default=2, help="iterations of a round (default: %(default)s)")
    parser.add_argument("--bucket-bytes", default=Run.bucket_bytes)
    parser.add_argument("--runs", default="", help="names of workflows, comma separated")
    parser.add_argument("--no-talking", action="store_true", help="leave rows of communicating alone out")
    parser.add_argument(
        "--pairs", type=int, default=0, help="pairs of SC-B:auto and SC-OBR:auto, or of the two of --runs"
    )
    parser.add_argument("--pin", action="store_true", help="bind each rank to a core of its own")
    parser.add_argument("--link-rate", action="store_true", help="print that rate, in tc's units")
    return parser.parse_args()


def main() -> None:
    """Measure, and print the table on rank 0."""
    a = arguments()
    take_precedence()
    world = open_world()
    if a.pin:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[world.rank % len(cores)]})
    solver = make_solver(world, narrowed(zoo(a.net, a.batch), a.width))

    def make(name: str, update: Callable[[Bucket], None] = solver.parts.update) -> Steps:
        own = KNOWN[name].bucket_bytes
        narrower = str(round(parse_bytes(own) * a.width**2))  # as many buckets as the whole net has
        run = replace(KNOWN[name], bucket_bytes=a.bucket_bytes if own == Run.bucket_bytes else narrower)
        given = world, solver.parts.collectives, solver.net, update, solver.parts.rule
        return steady(solver, make_workflow(run, *given), a.iterations)

    names = a.runs.split(",") if a.runs else list(RUNS)
    if a.profile.startswith("share:"):
        share = float(a.profile.removeprefix("share:"))
        a.profile = f"flops:{rate_of_share(share, solver, make('SC-B:auto'), a):.6g}"
    if a.profile.startswith("ratio:"):
        ratio = float(a.profile.removeprefix("ratio:"))
        a.profile = f"flops:{rate_of_ratio(ratio, solver, make(names[-1], lambda bucket: None), a):.6g}"
    if a.profile != "real":
        flops = a.profile.removeprefix("flops:")
        profile = by_operations(solver.net, float(flops)) if flops != a.profile else load(a.profile)
        solver.parts.update.replay = Replay(solver.net, profile)
    rows = {} if a.pairs else {ALONE: steady(solver, alone(solver), a.iterations)}
    if a.link_rate:
        text = link_rate(solver, measure(world, rows, a)[ALONE])
    elif a.pairs:
        names = names if a.runs else ["SC-B:auto", "SC-OBR:auto"]
        rounds = measure(world, {name: make(name) for name in names}, a, a.pairs)
        text = f"{about(world.size, a, solver)}\n{pairs(*rounds.items())}"
    else:
        for what in () if a.no_talking else dict.fromkeys(KNOWN[name].collective for name in names):
            row, how = TALKING[what]
            rows[row] = without_computing(solver, make(how, lambda bucket: None))
        rows |= {name: make(name) for name in names}
        text = table(world.size, a, solver, measure(world, rows, a))
    if world.is_root:
        print(text)
    world.comm.Barrier()


def without_computing(solver: Solver, step: Steps) -> Steps:
    """Return `step` with layers that take no time."""
    nothing = Profile({layer.name: (0.0, 0.0) for layer in solver.net.layers})

    def still() -> Spent:
        usual = solver.parts.update.replay, solver.net.forward_layer, solver.net.backward_layer
        solver.parts.update.replay = Replay(solver.net, nothing)
        spent = step()
        solver.parts.update.replay, solver.net.forward_layer, solver.net.backward_layer = usual
        return spent

    return still


def measure(world: World, rows: dict[str, Steps], a: argparse.Namespace, rounds: int = 0) -> Rounds:
    """Return what iterations take. Rows take turns, in opposite order every other round."""
    found: Rounds = {name: [] for name in rows}
    for k in range(rounds or a.rounds):
        for name, step in list(rows.items())[:: (-1) ** k]:
            world.comm.Barrier()
            ranks = world.allgather(step())
            wall, used = max(one.wall for one in ranks), max(one.used for one in ranks)
            sums, rest = ranks[0].summing, ranks[0].wall - ranks[0].summing
            found[name].append(Round(1e3 * wall, used / wall, 1e3 * sums, 1e3 * rest))
    return found


def middle(rounds: Sequence[Round]) -> float:
    """Return the median ms of an iteration."""
    return median(one.ms for one in rounds)


def link_rate(solver: Solver, rounds: Sequence[Round]) -> str:
    """Return the rate of a link at which a broadcast and a reduce of all parameters take as long as computing."""
    return f"{2 * 8 * solver.net.packed.nbytes / (1e-3 * middle(rounds)) / 1e6:.0f}mbit"


def pairs(base: tuple[str, Sequence[Round]], other: tuple[str, Sequence[Round]]) -> str:
    """Return the median of the pairs' ratios, with its bootstrap interval of 95 %."""
    ratios = np.divide([one.ms for one in other[1]], [one.ms for one in base[1]])
    resampled = np.median(np.random.default_rng(0).choice(ratios, (10_000, len(ratios))), axis=1)
    low, high = np.percentile(resampled, (2.5, 97.5))
    return (
        f"{other[0]} / {base[0]}: {median(ratios):.3f}, 95 % interval {low:.3f} to {high:.3f}, {len(ratios)} pairs; "
        f"medians {middle(other[1]):.1f} and {middle(base[1]):.1f} ms"
    )


def about(ranks: int, a: argparse.Namespace, solver: Solver) -> str:
    """Return the head of a table: net, batch, ranks, profile, buckets."""
    return (
        f"{a.net}, batch {a.batch} a rank, {ranks} ranks, {solver.net.packed.nbytes / 2**20:.0f} MiB, "
        f"profile {a.profile}, buckets of {a.bucket_bytes}"
    )


def table(ranks: int, a: argparse.Namespace, solver: Solver, rounds: Rounds) -> str:
    """Return the table."""
    ms = {name: middle(each) for name, each in rounds.items()}
    head = f"{'':24}{'ms':>9}{'least':>9}{'most':>9}{'busy':>7}{'sums':>9}{'rest':>9}{'/ SC-B':>9}"
    lines = [about(ranks, a, solver), f"{head}{'/ greater':>11}{'samples/s':>11}{'hidden':>8}"]
    base = ms.get("SC-B", ms.get("SC-B:auto", np.nan))
    for name, each in rounds.items():
        least, most = min(one.ms for one in each), max(one.ms for one in each)
        busy, sums, rest = (median(of) for of in zip(*(one[1:] for one in each), strict=True))
        line = f"{name:24}{ms[name]:9.1f}{least:9.1f}{most:9.1f}{busy:7.0%}{sums:9.1f}{rest:9.1f}{ms[name] / base:9.2f}"
        if name in KNOWN:
            talking, rate = ms.get(TALKING[KNOWN[name].collective][0], np.nan), 1e3 * ranks * a.batch / ms[name]
            line += f"{ms[name] / np.maximum(ms[ALONE], talking):11.2f}{rate:11.1f}"
            line += f"{(ms[ALONE] + talking - ms[name]) / talking:8.0%}"
        lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    main()
