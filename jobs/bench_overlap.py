"""Milliseconds of an iteration by each workflow, in turn in one run; each rank is started by bench_overlap.sh.

    mpirun -n P python jobs/bench_overlap.py NET [--batch N] [--profile FILE.json|real|flops:RATE] [--rounds N]

With a profile layers take its times (scaffe's replay); `flops:RATE` makes one of the layers' operations at so many
a second, backward twice the forward; with `real` the processor computes. Rows: computing alone, communicating alone
(SC-OBR without computing), then the workflows. Columns: median ms, the least and the most of the rounds, ratios to SC-B
and to the greater of the two alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np

from scaffe import Net, benchmark, models
from scaffe.parallel.aggregate import Aggregate
from scaffe.parallel.drive import Hook, Trial
from scaffe.parallel.propagate import Propagate
from scaffe.parallel.run import Run
from scaffe.parallel.workflow import Workflow, make_workflow
from scaffe.parallel.world import World, open_world
from scaffe.proto import SolverParameter
from scaffe.replay import Profile, Replay, load
from scaffe.solver import Solver

RUNS = {
    "SC-B": Run(reduce="mpi"),
    "SC-OB": Run("SC-OB", reduce="mpi", drive="helper"),
    "SC-OBR": Run("SC-OBR", reduce="mpi", drive="helper"),
    "SC-B auto": Run(reduce="auto"),
    "SC-OB auto": Run("SC-OB", reduce="auto", drive="helper"),
    "SC-OBR auto": Run("SC-OBR", reduce="auto", drive="helper"),
    "SC-OBR chain": Run("SC-OBR", reduce="chain", drive="helper"),
    "SC-OBR cb-4": Run("SC-OBR", reduce="cb-4", drive="helper"),
    "SC-OBR auto, hook": Run("SC-OBR", reduce="auto", drive="hook"),
    "allreduce auto": Run("SC-OBR", "allreduce", reduce="auto", drive="helper"),
}


def by_operations(net: Net, rate: float) -> Profile:
    """Return a profile in which convolutions and inner products run at `rate` operations a second."""
    forward = [benchmark.layer_operations(layer, top) / rate for layer, top in zip(net.layers, net.tops, strict=True)]
    return Profile({layer.name: (t, 2 * t) for layer, t in zip(net.layers, forward, strict=True)})


def alone(solver: Solver) -> Workflow:
    """Return the ways of a rank that has nobody to talk to: it computes, and that is all."""
    propagate = Propagate(solver.world, solver.net.packed, None, everywhere=True)
    propagate.stale = False
    aggregate = Aggregate(solver.world, solver.net.packed, [], propagate, solver._update, lambda: None)
    return Workflow(propagate, aggregate, Trial([Hook()], solver.world.allsums))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("net")
    parser.add_argument("--batch", type=int, default=32, help="of each rank")
    parser.add_argument("--profile", default="flops:5e12")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=2, help="of a round")
    parser.add_argument("--bucket-bytes", default=Run.bucket_bytes)
    parser.add_argument("--runs", default="", help="names of workflows, separated by ';'")
    a = parser.parse_args()
    world = open_world()
    fields = {"base_lr": 1e-6, "momentum": 0.9, "weight_decay": 5e-4, "lr_policy": "fixed", "random_seed": 1}
    param = SolverParameter(snapshot_after_train=False, max_iter=1, **fields)
    param.net_param.MergeFrom(models.get(a.net).train_val(batch=a.batch, data="input"))
    solver = Solver(param, world=world, scaling="weak")
    if a.profile != "real":
        flops = a.profile.removeprefix("flops:")
        profile = by_operations(solver.net, float(flops)) if flops != a.profile else load(a.profile)
        solver.replay = Replay(solver.net, profile)
    names = a.runs.split(";") if a.runs else list(RUNS)
    rows: dict[str, Callable[[], None]] = {"computing alone": workflow_step(solver, alone(solver), a.iterations)}
    given = world, solver.collectives, solver.net, solver._update, solver.rule.clip, False
    if solver.replay:
        talking = workflow_step(solver, make_workflow(RUNS["SC-OBR auto"], *given), a.iterations)
        rows["communicating alone"] = without_computing(solver.replay, talking)
    for name in names:
        run = Run(**{**RUNS[name].__dict__, "bucket_bytes": a.bucket_bytes})
        rows[name] = workflow_step(solver, make_workflow(run, *given), a.iterations)
    spent = measure(world, rows, a.rounds, a.iterations)
    if world.is_root:
        print(table(world.size, a, solver, spent))
    world.comm.Barrier()


def workflow_step(solver: Solver, workflow: Workflow, iterations: int) -> Callable[[], None]:
    """Return what runs so many iterations by a workflow, and ends when all its messages have come to rest."""

    def step() -> None:
        solver.workflow = workflow
        solver.step(iterations)
        workflow.propagate.sync()

    return step


def without_computing(replay: Replay, step: Callable[[], None]) -> Callable[[], None]:
    """Return the step with layers that take no time."""

    def still() -> None:
        replay.factor = 0.0
        step()
        replay.factor = 1.0

    return still


def measure(world: World, rows: dict[str, Callable[[], None]], rounds: int, iterations: int) -> dict[str, list[float]]:
    """Return the last rank's ms an iteration in each round, taken in turn after a round that doesn't count."""
    spent: dict[str, list[float]] = {name: [] for name in rows}
    for k in range(rounds + 1):
        for name, step in rows.items():
            world.comm.Barrier()
            start = time.perf_counter()
            step()
            seconds = max(world.comm.allgather(time.perf_counter() - start))
            if k:
                spent[name].append(1e3 * seconds / iterations)
    return spent


def table(ranks: int, a: argparse.Namespace, solver: Solver, spent: dict[str, list[float]]) -> str:
    """Return the table."""
    middle = {name: median(each) for name, each in spent.items()}
    slowest = max(middle["computing alone"], middle.get("communicating alone", 0.0))
    lines = [
        f"{a.net}, batch {a.batch} a rank, {ranks} ranks, {solver.net.packed.nbytes / 2**20:.0f} MiB, "
        f"profile {a.profile}, buckets of {a.bucket_bytes}",
        f"{'':24}{'ms':>9}{'least':>9}{'most':>9}{'/ SC-B':>9}{'/ greater':>11}",
    ]
    for name, each in spent.items():
        ratio = middle[name] / middle.get("SC-B", np.nan)
        lines.append(
            f"{name:24}{middle[name]:9.1f}{min(each):9.1f}{max(each):9.1f}{ratio:9.2f}{middle[name] / slowest:11.2f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
