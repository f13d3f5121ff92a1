"""Accuracy over seeds, by the numbers that gradients have in messages and by the parameters' owners.

    mpirun -n P python jobs/bench/seeds.py NET TRAIN_DB TEST_DB [--owners root,slices] [--numbers float32,bf16]
                                           [--seeds N] [--iterations N] [--rate R] [--scale S]

NET is one of scaffe's model zoo. Rows: mean, least and most accuracy on TEST_DB over the seeds. A row lies within the
seeds' spread where its mean is between least and most of float32's with the same owners. `int8-` is int8 without error
feedback; the owner `all` is an allreduce.
"""

from __future__ import annotations

import argparse
import logging

import numpy as np

from scaffe import models
from scaffe.parallel.evaluate import means
from scaffe.parallel.run import Run
from scaffe.parallel.world import World, open_world
from scaffe.proto import NetParameter, SolverParameter
from scaffe.training import tests
from scaffe.training.solver import Solver

BATCH, TEST_BATCH, TESTED = 64, 100, 1000  # images
OWNERS, NUMBERS = ("root", "spread", "slices", "all"), ("float32", "bf16", "float16", "int8", "int8-")


def main() -> None:
    """Train each run with each seed, and print the table on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("net")
    parser.add_argument("sources", nargs=2, metavar="DB")
    parser.add_argument("--owners", default=",".join(OWNERS), help="comma separated (default: %(default)s)")
    parser.add_argument("--numbers", default=",".join(NUMBERS), help="comma separated (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--scale", type=float, default=1 / 256, help="of pixels (default: %(default)s)")
    a = parser.parse_args()
    logging.disable(logging.INFO)
    world, net = open_world(), sourced(a.net, *a.sources, a.scale)
    if world.is_root:
        print(f"{a.net}, {world.size} ranks, {a.seeds} seeds, {a.iterations} iterations of {BATCH} images\n")
        print("| owners | numbers | mean | least | most | within float32's |\n|---|---|---|---|---|---|", flush=True)
    for owners in a.owners.split(","):
        spread = None
        for numbers in a.numbers.split(","):
            found = [accuracy(world, net, run(owners, numbers), a, seed) for seed in range(1, a.seeds + 1)]
            spread = spread or (min(found), max(found))
            within = "yes" if spread[0] <= np.mean(found) <= spread[1] else "no"
            if world.is_root:
                ends = f"{min(found):.3f} | {max(found):.3f}"
                print(f"| {owners} | {numbers} | {np.mean(found):.4f} | {ends} | {within} |", flush=True)


def sourced(name: str, train: str, test: str, scale: float) -> NetParameter:
    """Return a net of the zoo over these databases, for ten classes."""
    net = models.get(name).train_val(batch=BATCH, classes=10)
    first = True
    for layer in net.layer:
        if layer.type == "Data":
            layer.ClearField("transform_param")
            layer.transform_param.scale = scale
            layer.data_param.source = train if first else test
            layer.data_param.batch_size = BATCH if first else TEST_BATCH
            first = False
    return net


def run(owners: str, numbers: str) -> Run:
    """Return how the ranks train."""
    feedback = "off" if numbers.endswith("-") else "auto"
    how = {"gradient_numbers": numbers.removesuffix("-"), "error_feedback": feedback}
    return Run("SC-OBR", "allreduce", **how) if owners == "all" else Run("SC-OBR", owners=owners, **how)


def accuracy(world: World, net: NetParameter, run: Run, a: argparse.Namespace, seed: int) -> float:
    """Return the accuracy on all test images after a training. Collective."""
    fields = {"base_lr": a.rate, "lr_policy": "poly", "power": 1.0, "momentum": 0.9, "weight_decay": 5e-4}
    tested = {"test_iter": [TESTED // TEST_BATCH], "test_interval": 10**9, "test_initialization": False}
    ends = {"max_iter": a.iterations, "random_seed": seed, "snapshot_after_train": False}
    solver = Solver(SolverParameter(net_param=net, **fields, **tested, **ends), world=world, run=run)
    try:
        solver.step(a.iterations)
        solver.parts.propagate.sync()
        return float(means(tests.run_one(solver.job, solver.parts, 0)).outputs["accuracy"][0])
    finally:
        solver.close()


if __name__ == "__main__":
    main()
