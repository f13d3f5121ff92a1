"""Time iterations with one allreduce after the backward pass, on each rank; swcaffe_10.py starts it.

    mpirun -n P python one_exchange.py SECONDS [BATCH ...]

Layers sleep for their times, which are SECONDS for batch 256 and in proportion for others; updates are the net's own.
Rank 0 prints as JSON what the links do (jobs/bench/simulated.py) and, by batch, in turns, the rounds of:

- alone: the seconds of an iteration without messages, of the slowest rank,
- together: with them, of the slowest rank,
- exchange: of these the seconds of the allreduce on the same rank; the meters of `scaffe train` count them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import replays
from iteration import zoo
from narrow import narrowed
from overlap import alone, by_operations
from rank import take_precedence
from simulated import links
from steady import make_solver, slowest, steady
from swcaffe_10 import BATCHES, CHUNK, RUN, WIDTH

from scaffe.parallel.maker import make_workflow
from scaffe.parallel.world import open_world
from scaffe.training.replay import Replay

ROUNDS, ITERATIONS = 3, 2


def main(seconds: float, batches: Sequence[int]) -> None:
    """Measure; rank 0 prints the JSON."""
    take_precedence()
    world = open_world()
    solver = make_solver(world, narrowed(zoo("alexnet", 1), WIDTH))
    given = world, solver.collectives, solver.net, solver.update_bucket, solver.rule
    workflows = {"alone": alone(solver), "together": make_workflow(RUN, *given)}
    ways = {name: steady(solver, workflow, ITERATIONS) for name, workflow in workflows.items()}
    found: dict[str, Any] = {"links": links(world, CHUNK)}
    found |= {str(batch): {"alone": [], "together": [], "exchange": []} for batch in batches}
    for turn in range(ROUNDS):  # they begin at either end
        for batch in batches[:: (-1) ** turn]:
            rows = found[str(batch)]
            rate = replays.rate_of(solver.net, seconds * batch / BATCHES[0])
            solver.replay = Replay(solver.net, by_operations(solver.net, rate))
            for name, step in [*ways.items()][:: (-1) ** turn]:
                spent = slowest(world, step())
                rows[name].append(spent.wall)
                if name == "together":
                    rows["exchange"].append(spent.summing)
    if world.is_root:
        print(json.dumps(found))
    world.comm.Barrier()


if __name__ == "__main__":
    main(float(sys.argv[1]), [int(batch) for batch in sys.argv[2:]])
