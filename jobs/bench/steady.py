"""Steady: what iterations by one workflow take, in the steady state, on each rank.

overlap.py, simulated.py and jobs/papers/one_exchange.py time by it. The first iteration of a step begins without
messages in flight, and the last one ends without: what hides behind the next iteration hides only in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from iteration import solver_param

from scaffe.parallel.choose import WorkflowTrial
from scaffe.parallel.run import Run
from scaffe.parallel.workflows.workflow import Workflow
from scaffe.parallel.world import World
from scaffe.proto import NetParameter
from scaffe.training.solver import Solver


class Spent(NamedTuple):
    """Seconds of a rank: on the clock, of its threads on the cores, and waiting for the sums of gradients."""

    wall: float
    used: float
    summing: float


Steps = Callable[[], Spent]  # runs iterations; returns the mean of what one takes this rank


class Ends(WorkflowTrial):
    """The trial of a single workflow; it notes what this rank has spent at the end of each iteration."""

    def __init__(self, solver: Solver, workflow: Workflow):
        super().__init__({"": workflow}, solver.world.allgather)
        self.ends: list[Spent] = []

    def took(self, seconds: float) -> str:
        """Note the end of an iteration."""
        self.ends.append(Spent(time.perf_counter(), time.process_time(), self.workflow.aggregate.meter.exposed))
        return super().took(seconds)


def make_solver(world: World, net: NetParameter) -> Solver:
    """Return a solver of a net without data's sources, whose whole batch each rank has. Collective."""
    return Solver(solver_param(net), world=world, run=Run(scaling="weak"))


def steady(solver: Solver, workflow: Workflow, iterations: int = 1) -> Steps:
    """Return a function that runs iterations by a workflow, of which the first and the last do not count. Collective.

    Its first call runs others before, until the workflow has opened its connections and decided all it decides.
    """
    trial = Ends(solver, workflow)

    def step() -> Spent:
        solver.parts.trial = trial
        solver.parts.update.follow(workflow)  # before what is timed: a history may have to go to other owners
        while not (trial.ends and workflow.is_settled):
            solver.step(1)
        trial.ends.clear()
        solver.step(1 + iterations + 1)
        means = np.subtract(trial.ends[-2], trial.ends[0]) / iterations
        return Spent(*means.tolist())

    return step


def slowest(world: World, spent: Spent) -> Spent:
    """Return what the rank has spent that took longest, all of that one rank. Collective."""
    return max(world.allgather(spent), key=lambda one: one.wall)
