"""Time iterations with one allreduce after the backward pass, on each rank; swcaffe_10.py starts it.

    mpirun -n P python one_exchange.py SECONDS [BATCH ...]

Layers sleep for their times, which are SECONDS for batch 256 and in proportion for others; updates are the net's own.
Rank 0 prints as JSON what the links do (jobs/bench/simulated.py) and, by batch, in turns, the rounds of:

- alone: the seconds of an iteration without messages,
- together: with them, of the slowest rank,
- exchange: of these the seconds of the allreduce, the mean of the ranks; the meters of `scaffe train` count them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import replays
from narrow import narrowed
from overlap import alone, by_operations
from rank import take_precedence
from simulated import links
from swcaffe_10 import BATCHES, CHUNK, RUN, WIDTH

from scaffe import models
from scaffe.parallel.choose import WorkflowTrial
from scaffe.parallel.maker import make_workflow
from scaffe.parallel.run import Run
from scaffe.parallel.workflows.workflow import Workflow
from scaffe.parallel.world import open_world
from scaffe.proto import SolverParameter
from scaffe.training.replay import Replay
from scaffe.training.solver import Solver

ROUNDS, ITERATIONS = 5, 1


def iterations(solver: Solver, workflow: Workflow) -> tuple[float, float]:
    """Return the seconds of an iteration, and of its allreduce; the first, which fills the pipeline, is not timed."""
    solver.trial = WorkflowTrial({"": workflow}, solver.world.allgather)
    solver.step(1)
    solver.world.comm.Barrier()
    meter = workflow.aggregate.meter
    before, start = meter.exposed, time.perf_counter()
    solver.step(ITERATIONS)
    spent = time.perf_counter() - start, meter.exposed - before
    return spent[0] / ITERATIONS, spent[1] / ITERATIONS


def main(seconds: float, batches: Sequence[int]) -> None:
    """Measure; rank 0 prints the JSON."""
    take_precedence()
    world = open_world()
    fields = {"base_lr": 1e-6, "momentum": 0.9, "weight_decay": 5e-4, "lr_policy": "fixed", "random_seed": 1}
    net = narrowed(models.get("alexnet").train_val(batch=1, data="input"), WIDTH)
    solver = Solver(SolverParameter(net_param=net, max_iter=1, **fields), world=world, run=Run(scaling="weak"))
    given = world, solver.collectives, solver.net, solver.update_bucket, solver.rule
    ways = {"alone": alone(solver), "together": make_workflow(RUN, *given)}
    found: dict[str, Any] = {"links": links(world, CHUNK)}
    found |= {str(batch): {"alone": [], "together": [], "exchange": []} for batch in batches}
    for turn in range(ROUNDS + 1):  # the first is not kept; others begin at either end
        for batch in batches[:: (-1) ** turn]:
            rate = replays.rate_of(solver.net, seconds * batch / BATCHES[0])
            solver.replay = Replay(solver.net, by_operations(solver.net, rate))
            for name, workflow in [*ways.items()][:: (-1) ** turn]:
                spent, exchanged = zip(*world.allgather(iterations(solver, workflow)), strict=True)
                if turn:
                    found[str(batch)][name].append(max(spent))
                if turn and name == "together":
                    found[str(batch)]["exchange"].append(fmean(exchanged))
    if world.is_root:
        print(json.dumps(found))
    world.comm.Barrier()


if __name__ == "__main__":
    main(float(sys.argv[1]), [int(batch) for batch in sys.argv[2:]])
