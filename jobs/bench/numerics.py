"""Accuracy of training in float32 and in bf16, over several seeds.

    OMP_NUM_THREADS=1 python jobs/bench/numerics.py [--nets lenet,cifar10_quick] [--seeds 5] [--iterations 1000]

LeNet learns scikit-learn's handwritten digits, 1 x 28 x 28. CIFAR10-quick learns images of CIFAR-10's shape, 3 x 32 x
32: each digit five times, in random colours, at random places, with noise. A seed sets the initial weights. Both number
formats start from the same weights and read the same batches. A line of the table has the mean, the standard deviation
and the range of the accuracy over the seeds, and the mean and deviation of the loss, on images that are not trained on.

Exit code 1 where the mean accuracy of bf16 differs from that of float32 by more than the deviation of float32.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

import scaffe
from readers import convert_digits, encode, open_database, write_lmdb
from scaffe import models
from scaffe.compute import Compute
from scaffe.proto import NetParameter, SolverParameter
from scaffe.training.solver import Solver

NUMBERS = ("float32", "bf16")
COPIES, SIDE, NOISE = 5, 32, 30  # of each digit; pixels; standard deviation of the noise
TEST_BATCH, HELD_OUT = 60, 360


class Task(NamedTuple):
    """What a net learns: its batch, its transform, its number of images to test, and fields of its solver."""

    batch: int
    transform: dict[str, object]
    tests: int
    fields: dict[str, float]


TASKS = {
    "lenet": Task(64, {"scale": 1 / 256}, HELD_OUT, {"base_lr": 0.02, "weight_decay": 0.0005}),
    "cifar10_quick": Task(100, {"mean_value": [128.0]}, HELD_OUT * COPIES, {"base_lr": 0.001, "weight_decay": 0.004}),
}


def coloured(source: str, seed: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield records of 3 x 32 x 32 made of those of the digits in `source`."""
    rng, database = np.random.default_rng(seed), open_database(source)
    for number, (_, value) in enumerate(database.read(range(len(database))) * COPIES):
        digit, label = database.decode(value)
        top, left = rng.integers(0, SIDE - digit.shape[1] + 1, 2)
        shape = np.zeros((SIDE, SIDE))
        shape[top : top + digit.shape[1], left : left + digit.shape[2]] = digit[0] / 255
        ink, paper = rng.uniform(0, 255, (2, 3, 1, 1))
        image = paper + (ink - paper) * shape + rng.normal(0, NOISE, (3, SIDE, SIDE))
        yield b"%08d" % number, encode(np.clip(image, 0, 255).astype(np.uint8), label)


def write_data(folder: Path) -> dict[str, list[str]]:
    """Write the databases; return for each net those to train and to test on."""
    digits = list(convert_digits(folder))
    paths = [str(folder / part) for part in ("train", "test")]
    for seed, (source, path) in enumerate(zip(digits, paths, strict=True)):
        write_lmdb(path, coloured(source, seed))
    return {"lenet": digits, "cifar10_quick": paths}


def net(name: str, sources: list[str]) -> NetParameter:
    """Return the net of the model zoo over these databases."""
    task, param = TASKS[name], models.get(name).train_val()
    for layer, source, batch in zip(param.layer, sources, (task.batch, TEST_BATCH), strict=False):
        layer.data_param.source, layer.data_param.batch_size = source, batch
        layer.ClearField("transform_param")
        for field, value in task.transform.items():
            layer.transform_param.MergeFrom(type(layer.transform_param)(**{field: value}))
    return param


def trained(name: str, sources: list[str], numbers: str, seed: int, iterations: int) -> tuple[float, float]:
    """Return the accuracy and the loss, on held-out images, after training from the weights of a seed."""
    task, compute = TASKS[name], Compute("onednn", numbers=numbers)
    schedule = {"lr_policy": "poly", "power": 1, "max_iter": iterations, "momentum": 0.9}
    param = SolverParameter(net_param=net(name, sources), random_seed=seed, **schedule, **task.fields)
    solver = Solver(param, compute=compute)
    solver.step(iterations)
    test = scaffe.Net(net(name, sources), scaffe.TEST, compute=compute)
    test.share_with(solver.net)
    found = []
    for _ in range(task.tests // TEST_BATCH):
        test.forward()
        found.append((float(test.blobs["accuracy"].data), float(test.blobs["loss"].data)))
    test.close()
    solver.close()
    accuracy, loss = np.mean(found, 0)
    return accuracy, loss


def bench(name: str, sources: list[str], seeds: int, iterations: int) -> bool:
    """Print the lines of a net; return whether the means of the accuracy are near each other."""
    means = []
    for numbers in NUMBERS:
        found = [trained(name, sources, numbers, seed, iterations) for seed in range(1, seeds + 1)]
        accuracy, loss = np.transpose(found)
        means.append((accuracy.mean(), accuracy.std(ddof=1)))
        line = f"{100 * accuracy.mean():9.2f} {100 * accuracy.std(ddof=1):6.2f}"
        line += f"   {100 * accuracy.min():6.2f} to {100 * accuracy.max():6.2f}"
        print(f"{name:14} {numbers:8} {line} {loss.mean():9.4f} {loss.std(ddof=1):7.4f}", flush=True)
    (float32, deviation), (bf16, _) = means
    print(
        f"{name:14} bf16 less float32: {100 * (bf16 - float32):+.2f} %, deviation {100 * deviation:.2f} %", flush=True
    )
    return bool(abs(bf16 - float32) <= deviation)


def main() -> int:
    """Print the table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", default=",".join(TASKS), help="default: all of %(default)s")
    parser.add_argument("--seeds", type=int, default=5, help="at least 2 (default: %(default)s)")
    parser.add_argument("--iterations", type=int, default=1000, help="of each training (default: %(default)s)")
    arguments = parser.parse_args()
    names = arguments.nets.split(",")
    if unknown := [name for name in names if name not in TASKS]:
        parser.error(f"unknown nets {' '.join(unknown)}; known: {' '.join(TASKS)}")
    threadpool_limits(int(os.environ.get("OMP_NUM_THREADS", "1")))
    logging.disable(logging.INFO)  # not the nets' shapes
    print("net            numbers   accuracy   dev.       range          loss    dev.")
    with tempfile.TemporaryDirectory() as folder:
        sources = write_data(Path(folder))
        near = [bench(name, sources[name], arguments.seeds, arguments.iterations) for name in names]
    return 0 if all(near) else 1


if __name__ == "__main__":
    sys.exit(main())
