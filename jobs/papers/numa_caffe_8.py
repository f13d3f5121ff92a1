"""NUMA-Caffe, theorem 4.1 and figure 8; SingleCaffe, equation 4: the same gradients, the same accuracy. The gate.

    mpirun -n P python numa_caffe_8.py FOLDER WAY    trains; rank 0 writes what it found into FOLDER

One solver with batch b is compared with n solvers of b / n each: instances of one process, by each paper's gather, or
ranks. Nothing else is measured while their gradients differ.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lab
import numpy as np
from drawing import OURS, PAPER, bars
from figure import ASSUMED, STATED, Data, Figure, Input, M
from verdicts import DIFFERS, INCONCLUSIVE, REPRODUCED, Judged

import scaffe
from readers import compute_image_mean, encode, write_lmdb
from scaffe import models
from scaffe.parallel.instances.instances import Instances
from scaffe.proto import SolverParameter

BATCH, ITERATIONS, LARGEST = 32, 1000, 1e-5
ONE = "1 solver"


@dataclass(frozen=True)
class Way:
    """A way to train: ranks, instances of each and their gather."""

    ranks: int = 1
    instances: int = 1
    gather: str = "auto"


WAYS = {
    "8 instances, tree": Way(instances=8, gather="tree:2"),
    "8 instances, slices": Way(instances=8, gather="slices"),
    "4 ranks": Way(ranks=4),
    "2 ranks of 2, server": Way(ranks=2, instances=2, gather="server"),
}
ALL = {ONE: Way(), **WAYS}
IMAGES, TEST_IMAGES, TEST_DIGITS, NOISE, SEED = 16_000, 4_000, 360, 1.0, 5
Records = Iterator[tuple[bytes, bytes]]


def write_digits(folder: Path) -> None:
    """Write databases of 3 x 32 x 32 images: scikit-learn's digits, enlarged, each time in other colours and noise."""
    from sklearn.datasets import load_digits

    digits, random = load_digits(), np.random.default_rng(SEED)
    order = random.permutation(len(digits.images))

    def records(some: np.ndarray, count: int) -> Records:
        for number, i in enumerate(np.resize(some, count)):
            image = np.kron(digits.images[i] / 16, np.ones((4, 4))) * random.uniform(0.3, 1, (3, 1, 1))
            noisy = np.clip(image + NOISE * random.standard_normal((3, 32, 32)), 0, 1)
            yield f"{number:08d}".encode(), encode(np.rint(255 * noisy).astype(np.uint8), int(digits.target[i]))

    write_lmdb(folder / "test", records(order[:TEST_DIGITS], TEST_IMAGES))
    write_lmdb(folder / "train", records(order[TEST_DIGITS:], IMAGES))
    compute_image_mean(folder / "train", folder / "mean.binaryproto")


def net(folder: Path) -> Any:
    """Return Caffe's quick net for CIFAR-10, on the databases of a folder."""
    made = models.get("cifar10_quick").train_val(batch=BATCH)
    for layer in made.layer:
        if layer.type == "Data":
            part = "train" if scaffe.TRAIN in [rule.phase for rule in layer.include] else "test"
            layer.data_param.source = str(folder / part)
            layer.data_param.batch_size = BATCH if part == "train" else TEST_IMAGES
            layer.transform_param.mean_file = str(folder / "mean.binaryproto")
    return made


def train(folder: Path, way: Way) -> None:
    """Train as Caffe's example does; rank 0 writes the first iteration's gradients and the weights."""
    fields = {"base_lr": 0.001, "momentum": 0.9, "weight_decay": 0.004, "lr_policy": "multistep", "gamma": 0.1}
    fields |= {"stepvalue": [4 * ITERATIONS // 5], "max_iter": ITERATIONS, "random_seed": SEED}
    param = SolverParameter(snapshot_after_train=False, snapshot_prefix=str(folder / "s"), **fields)
    param.net_param.MergeFrom(net(folder))
    solver = scaffe.Solver(param, instances=Instances(str(way.instances), way.gather, oversubscribe=True))
    first: list[np.ndarray] = []

    def keep() -> None:
        if not first:
            first.append(np.concatenate([np.ravel(blob.diff) for some in solver.net.params.values() for blob in some]))

    solver.add_callback(lambda: None, keep)
    solver.step(ITERATIONS)
    if solver.world.is_root:
        solver.net.save(str(folder / "weights.caffemodel"))
        np.save(folder / "gradients.npy", first[0])
    solver.close()
    print("{}")


def accuracy(folder: Path) -> float:
    """Return the accuracy of a folder's weights on the test images, in percent."""
    scored = scaffe.Net(net(folder), str(folder / "weights.caffemodel"), scaffe.TEST)
    found = 100 * float(scored.forward()["accuracy"])
    scored.close()
    return found


def difference(found: np.ndarray, one: np.ndarray) -> float:
    """Return the norm of the difference of two gradients over the norm of the second."""
    return float(np.linalg.norm(found - one) / np.linalg.norm(one))


class SameGradients(Figure):
    """Ranks and instances compute what one solver computes."""

    id, tag = "numa-caffe-8", M
    is_gate = True
    inputs = (
        Input("accuracy", 1.24, "points", STATED, "section 4.1.1"),
        Input("gradients", LARGEST, "of their norm", ASSUMED, "float32's rounding; more stops all other measurements"),
        Input(
            "iterations", ITERATIONS, f"of a batch of {BATCH}", ASSUMED, "40,000 in the paper, which take hours here"
        ),
    )

    def measure(self) -> Data:
        """Return gradients' differences and accuracies, by way."""
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            write_digits(folder)
            found = {name: self._train(folder, name) for name in ALL}
        return {
            "accuracy": {name: one["accuracy"] for name, one in found.items()},
            "differences": {name: difference(found[name]["gradients"], found[ONE]["gradients"]) for name in WAYS},
        }

    def _train(self, folder: Path, name: str) -> Data:
        lab.ranks(ALL[name].ranks, __file__, str(folder), name)
        return {"gradients": np.load(folder / "gradients.npy"), "accuracy": accuracy(folder)}

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge the farthest accuracy, and that all gradients are one solver's."""
        if not measured:
            return Judged(INCONCLUSIVE, "-")
        points = max(apart(measured).values())
        largest = max(measured["differences"].values())
        text = f"{points:.2f} points apart at most, gradients {largest:.1e} of their norm; {len(WAYS)} ways"
        return Judged(REPRODUCED if points <= self.value("accuracy") and largest <= LARGEST else DIFFERS, text)

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw how far each way's accuracy is from one solver's, with the paper's bound."""
        found = apart(measured)
        bars(axes, [name.replace(", ", ",\n") for name in found], [("measured", found.values(), OURS)], fontsize=8)
        axes.axhline(self.value("accuracy"), color=PAPER, linestyle="--", label="paper: within 1.24")
        axes.set(ylabel="points of accuracy from one solver's", ylim=(0, 1.8))
        axes.set_title(f"After {ITERATIONS} iterations; one solver has {measured['accuracy'][ONE]:.1f} %", fontsize=10)


def apart(measured: Data) -> dict[str, float]:
    """Return by way how many points the accuracy is from one solver's."""
    return {name: abs(measured["accuracy"][name] - measured["accuracy"][ONE]) for name in WAYS}


FIGURE = SameGradients()

if __name__ == "__main__":
    train(Path(sys.argv[1]), ALL[sys.argv[2]])
