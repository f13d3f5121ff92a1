"""Milliseconds of an iteration by each workflow, which take turns in one run; overlap.sh starts the ranks.

    mpirun -n P python jobs/bench/overlap.py NET [--batch N] [--profile FILE.json|real|flops:RATE|share:S] [--rounds N]
                                             [--width W] [--pairs N] [--pin] [--link-rate]

With a profile layers take its times (scaffe's replay). `flops:RATE` makes a profile from the layers' operations at RATE
a second, backward twice the forward; `share:S` first measures SC-B's messages without computing, and sets the RATE at
which they take the share S of an iteration. With `real` the CPU computes. --width W gives layers W times as many
outputs: W squared times the bytes and operations, in the net's proportions. Rows:

- computing alone: one rank without others, with its update,
- communicating alone: SC-OBR without computing and updates, and the same by allreduce if a workflow uses it,
- each workflow.

Columns:

- median, least and most ms over the rounds,
- busy: the share of the time in which the busiest rank used a core,
- ratios to SC-B, and to the greater of computing alone and communicating alone,
- samples per second of all ranks,
- hidden: computing alone plus communicating alone, less the iteration, as a share of communicating alone. It can't
  exceed what `busy` leaves.

--pairs N runs N pairs of SC-B and another workflow, and prints the median of their ratios with a bootstrap interval.
--link-rate only prints the rate of a link at which communicating takes half of SC-B's iteration.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

import numpy as np
from narrow import narrowed
from rank import take_precedence

from scaffe import Net, models
from scaffe.parallel.buckets import Bucket
from scaffe.parallel.choose import WorkflowTrial
from scaffe.parallel.maker import make_workflow
from scaffe.parallel.run import Run
from scaffe.parallel.workflows.alone import Alone
from scaffe.parallel.workflows.workflow import Parts, Workflow
from scaffe.parallel.world import World, open_world
from scaffe.proto import SolverParameter
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
OTHERS = {  # other systems' exchanges: only where --runs names them
    "SC-B:binomial": Run(reduce="binomial"),
    "SC-B:flat": Run(reduce="flat"),  # of a parameter server: all gradients to the root, all parameters from it
    "SC-B:halving": Run(sync="allreduce", reduce="halving"),
    "SC-B:ring": Run(sync="allreduce", reduce="ring"),
    "SC-OBR:ring": Run("SC-OBR", "allreduce", reduce="ring", drive="helper"),
}
KNOWN = RUNS | OTHERS

ALONE = "computing alone"
Steps = Callable[[], tuple[float, float]]  # runs iterations; returns wall seconds and CPU seconds
Times = dict[str, list[float]]  # by row, an entry for each round
TALKING = {"reduce-bcast": "communicating alone", "allreduce": "allreduce alone"}


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
    both = {ALONE: workflow_step(solver, alone(solver), a.iterations), "SC-B:auto": exchange}
    spent, _ = measure(solver.world, {name: without_computing(solver, step) for name, step in both.items()}, a)
    computing = computing_of_share(share, *(1e-3 * median(each) for each in spent.values()))
    return sum(map(sum, by_operations(solver.net, 1.0).layers.values())) / computing


def alone(solver: Solver) -> Workflow:
    """Return the workflow of a rank without others: it computes and updates."""
    workflow = Alone(Parts(solver.world, None, solver.net, solver.update_bucket, solver.rule))
    workflow.propagate.everywhere, workflow.propagate.stale = True, False
    return workflow


def main() -> None:
    """Measure, and print the table on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("net", help="of the model zoo")
    parser.add_argument("--batch", type=int, default=32, help="samples of each rank (default: %(default)s)")
    parser.add_argument(
        "--profile", default="flops:5e12", help="FILE.json, real, flops:RATE or share:S (default: %(default)s)"
    )
    parser.add_argument("--width", type=float, default=1.0, help="of the layers (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each row (default: %(default)s)")
    parser.add_argument("--iterations", type=int, default=2, help="iterations of a round (default: %(default)s)")
    parser.add_argument("--bucket-bytes", default=Run.bucket_bytes)
    parser.add_argument("--runs", default="", help="names of workflows, comma separated")
    parser.add_argument(
        "--pairs", type=int, default=0, help="pairs of SC-B:auto and SC-OBR:auto, or of the two of --runs"
    )
    parser.add_argument("--pin", action="store_true", help="bind each rank to a core of its own")
    parser.add_argument("--link-rate", action="store_true", help="print that rate, in tc's units")
    a = parser.parse_args()
    take_precedence()
    world = open_world()
    if a.pin:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[world.rank % len(cores)]})
    fields = {"base_lr": 1e-6, "momentum": 0.9, "weight_decay": 5e-4, "lr_policy": "fixed", "random_seed": 1}
    param = SolverParameter(snapshot_after_train=False, max_iter=1, **fields)
    param.net_param.MergeFrom(narrowed(models.get(a.net).train_val(batch=a.batch, data="input"), a.width))
    solver = Solver(param, world=world, run=Run(scaling="weak"))

    def make(name: str, update: Callable[[Bucket], None] = solver.update_bucket) -> Steps:
        run = replace(KNOWN[name], bucket_bytes=a.bucket_bytes)
        given = world, solver.collectives, solver.net, update, solver.rule
        return workflow_step(solver, make_workflow(run, *given), a.iterations)

    if a.profile.startswith("share:"):
        share = float(a.profile.removeprefix("share:"))
        a.profile = f"flops:{rate_of_share(share, solver, make('SC-B:auto'), a):.6g}"
    if a.profile != "real":
        flops = a.profile.removeprefix("flops:")
        profile = by_operations(solver.net, float(flops)) if flops != a.profile else load(a.profile)
        solver.replay = Replay(solver.net, profile)
    if a.link_rate:
        spent, _ = measure(world, {ALONE: workflow_step(solver, alone(solver), a.iterations)}, a)
        text = link_rate(solver, spent[ALONE])
    elif a.pairs:
        names = a.runs.split(",") if a.runs else ["SC-B:auto", "SC-OBR:auto"]
        spent, _ = measure(world, {name: make(name) for name in names}, a, a.pairs)
        text = f"{about(world.size, a, solver)}\n{pairs(*spent.items())}"
    else:
        rows: dict[str, Steps] = {ALONE: workflow_step(solver, alone(solver), a.iterations)}
        names = a.runs.split(",") if a.runs else list(RUNS)
        for sync in dict.fromkeys(KNOWN[name].sync for name in names):
            how = "SC-OBR:auto" if sync == "reduce-bcast" else "allreduce:auto"
            rows[TALKING[sync]] = without_computing(solver, make(how, lambda bucket: None))
        rows |= {name: make(name) for name in names}
        text = table(world.size, a, solver, *measure(world, rows, a))
    if world.is_root:
        print(text)
    world.comm.Barrier()


def workflow_step(solver: Solver, workflow: Workflow, iterations: int) -> Steps:
    """Return a function that runs iterations by a workflow, after one that is not timed, and ends its messages."""
    trial = WorkflowTrial({"": workflow}, solver.world.allgather)

    def step() -> tuple[float, float]:
        solver.trial = trial
        while not workflow.is_settled:  # only in the first round, which is not counted
            solver.step(1)
        solver.step(1)  # not timed: before it no messages are in flight, as there are before all later ones
        start, used = time.perf_counter(), time.process_time()
        solver.step(iterations)
        spent = time.perf_counter() - start, time.process_time() - used
        workflow.propagate.sync()
        return spent

    return step


def without_computing(solver: Solver, step: Steps) -> Steps:
    """Return `step` with layers that take no time."""
    nothing = Profile({layer.name: (0.0, 0.0) for layer in solver.net.layers})

    def still() -> tuple[float, float]:
        usual = solver.replay, solver.net.forward_layer, solver.net.backward_layer
        solver.replay = Replay(solver.net, nothing)
        spent = step()
        solver.replay, solver.net.forward_layer, solver.net.backward_layer = usual
        return spent

    return still


def measure(world: World, rows: dict[str, Steps], a: argparse.Namespace, rounds: int = 0) -> tuple[Times, Times]:
    """Return the last rank's ms an iteration, and the greatest share of a core that a rank used.

    Rows take turns, in opposite order every other round. The first round is not counted.
    """
    spent: Times = {name: [] for name in rows}
    busy: Times = {name: [] for name in rows}
    for k in range((rounds or a.rounds) + 1):
        for name, step in list(rows.items())[:: -1 if k % 2 else 1]:
            world.comm.Barrier()
            seconds, used = np.max(world.comm.allgather(step()), axis=0)
            if k:
                spent[name].append(1e3 * seconds / a.iterations)
                busy[name].append(used / seconds)
    return spent, busy


def link_rate(solver: Solver, each: list[float]) -> str:
    """Return the rate of a link at which a broadcast and a reduce of all parameters take as long as computing."""
    return f"{2 * 8 * solver.net.packed.nbytes / (1e-3 * median(each)) / 1e6:.0f}mbit"


def pairs(base: tuple[str, list[float]], other: tuple[str, list[float]]) -> str:
    """Return the median of the pairs' ratios, with its bootstrap interval of 95 %."""
    ratios = np.divide(other[1], base[1])
    resampled = np.median(np.random.default_rng(0).choice(ratios, (10_000, len(ratios))), axis=1)
    low, high = np.percentile(resampled, (2.5, 97.5))
    return (
        f"{other[0]} / {base[0]}: {median(ratios):.3f}, 95 % interval {low:.3f} to {high:.3f}, {len(ratios)} pairs; "
        f"medians {median(other[1]):.1f} and {median(base[1]):.1f} ms"
    )


def about(ranks: int, a: argparse.Namespace, solver: Solver) -> str:
    """Return the head of a table: net, batch, ranks, profile, buckets."""
    return (
        f"{a.net}, batch {a.batch} a rank, {ranks} ranks, {solver.net.packed.nbytes / 2**20:.0f} MiB, "
        f"profile {a.profile}, buckets of {a.bucket_bytes}"
    )


def table(ranks: int, a: argparse.Namespace, solver: Solver, spent: Times, busy: Times) -> str:
    """Return the table."""
    middle = {name: median(each) for name, each in spent.items()}
    computing = middle[ALONE]
    head = f"{'':24}{'ms':>9}{'least':>9}{'most':>9}{'busy':>7}{'/ SC-B':>9}"
    head += f"{'/ greater':>11}{'samples/s':>11}{'hidden':>8}"
    lines = [about(ranks, a, solver), head]
    base = middle.get("SC-B", middle.get("SC-B:auto", np.nan))
    for name, each in spent.items():
        ms = middle[name]
        line = f"{name:24}{ms:9.1f}{min(each):9.1f}{max(each):9.1f}{median(busy[name]):7.0%}{ms / base:9.2f}"
        if name in KNOWN:
            talking = middle[TALKING[KNOWN[name].sync]]
            line += f"{ms / max(computing, talking):11.2f}{1e3 * ranks * a.batch / ms:11.1f}"
            line += f"{(computing + talking - ms) / talking:8.0%}"
        lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    main()
