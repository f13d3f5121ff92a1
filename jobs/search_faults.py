"""Random trainings, processes of which are killed, stopped or ended at random moments: the jobs of search.py faults."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from fault_cells import ENDS, LAST, LOSS, MIRROR, NODE, WORKFLOWS, WRITING, Cell
from fault_jobs import Job, Training
from fault_moments import CALL, EXIT, KILL, STOP
from faults import FaultError, Matrix
from search_draw import draw_collective, draw_solver
from search_layers import draw_net

AT_ONCE = 2  # jobs
MOST_CALLS, MOST_SET_UP_CALLS = 30_000, 200_000  # of Python functions: more than in an iteration, and in the set-up
BATCH = 12  # at least a sample for each instance of 4 ranks and a spare
FAILED = "failed"


class Fault(NamedTuple):
    """A training, and the cell of jobs/faults.py that says what hits it."""

    number: int
    cell: Cell
    training: Training


class Result(NamedTuple):
    """How a fault ended: its outcome, and what was wrong."""

    fault: Fault
    outcome: str
    wrong: str = ""


def draw(seed: int, number: int, is_tolerant: bool) -> Fault:
    """Return case `number` of a seed; without a tolerant MPI each loss ends the job."""
    random = Random(f"{seed} {number} fault")
    workflow, ranks = random.choice(list(WORKFLOWS)), random.randint(2, 4)
    loss = random.choice([name for name in LOSS if is_tolerant or name == ENDS])
    iteration = random.randint(-1, LAST - 1)
    calls = int(math.exp(random.uniform(0, math.log(MOST_SET_UP_CALLS if iteration < 0 else MOST_CALLS))))
    fault = random.choice([KILL, KILL, STOP, EXIT])
    victims = random.choice(
        ["root", "another", "two"] if ranks > 2 else ["root", "another"]
    )  # jobs/lab/mpi_all_lost.py
    cell = Cell(fault, f"{CALL}{calls}", victims, workflow, ranks, iteration, random.choice(list(WRITING)), loss)
    if loss == MIRROR and cell.is_everywhere:
        cell = cell._replace(loss="shrink")
    return Fault(number, cell, draw_training(random, workflow))


def draw_training(random: Random, workflow: str) -> Training:
    """Return a random training of LAST iterations."""
    net = draw_net(random, random.randint(BATCH, 2 * BATCH), random.randint(2, 5), random.random() < 0.15)
    solver = [
        *draw_solver(random, False),
        f"iter_size: {random.choice([1, 1, 2])} clip_gradients: {random.choice([-1, 0.1])}",
    ]
    solver.append(f'net: "net.prototxt" max_iter: {LAST} snapshot_prefix: "snap" solver_mode: CPU')
    run = draw_collective(random, "allreduce" if "allreduce" in workflow else "reduce-bcast")
    flags = [word for name, value in run.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return Training("\n".join(net.lines), "\n".join(solver), tuple(flags))


def run_fault(fault: Fault, folder: Path, seconds: float) -> Result:
    """Run a job, and compare it with undisturbed ones; remove its files unless something is wrong."""
    below = folder / str(fault.number)
    try:
        outcome = Matrix(below, seconds, {NODE: partial(Job, training=fault.training)}).run(fault.cell)
    except (FaultError, SystemExit) as error:
        return Result(fault, FAILED, str(error))
    shutil.rmtree(below, ignore_errors=True)  # a launcher that has ended may be removing its folder in there meanwhile
    return Result(fault, outcome)


def run_faults(faults: Sequence[Fault], folder: Path, seconds: float) -> Iterator[Result]:
    """Yield how each fault ended, once it is known; some jobs run at the same time."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for one in as_completed([pool.submit(run_fault, fault, folder, seconds) for fault in faults]):
            yield one.result()
