"""NUMA-Caffe, theorem 4.1 and figure 8; SingleCaffe, equation 4: the same gradients, the same accuracy. The gate.

    mpirun -n P python numa_caffe_8.py FOLDER WAY    trains; rank 0 writes what it found into FOLDER

One solver with batch b is compared with n solvers of b / n each: instances of one process, by each paper's gather, or
ranks. Two controls tell what the difference of two loss curves says: one solver whose first weights are a rounding off,
and one that sums where it should average.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lab
import numpy as np
from figure import MODEL, OTHER, OURS, STATED, Check, Data, Figure, Input

import scaffe
from readers import compute_image_mean, encode, write_lmdb
from scaffe import models
from scaffe.parallel.instances.instances import Instances
from scaffe.proto import SolverParameter

BATCH, ITERATIONS, LARGEST = 32, 1000, 1e-5
GATE = "relative difference of gradients"
SHOWN, SHORT = 100, 20  # iterations of a point of a loss curve; of finer points, which stand in the words alone
CHAOS = 2  # times the nudged solver's distance that another may have: one nudge is one draw, so this is coarse
ONE, NUDGED, SUMMED = "1 solver", "1 solver, weights a rounding off", "1 solver, sums of 2"  # keys of what is kept
IN_WORDS = {
    NUDGED: "1 solver, first weights a rounding apart",
    SUMMED: "1 solver, gradients doubled",
}


@dataclass(frozen=True)
class Way:
    """A way to train: ranks, instances of each and their gather; first weights and gradients are so many times."""

    ranks: int = 1
    instances: int = 1
    gather: str = "auto"
    weights: float = 1.0
    gradients: float = 1.0


WAYS = {
    "8 instances, tree": Way(instances=8, gather="tree:2"),
    "8 instances, slices": Way(instances=8, gather="slices"),
    "4 ranks": Way(ranks=4),
    "2 ranks of 2, server": Way(ranks=2, instances=2, gather="server"),
}
CONTROLS = {NUDGED: Way(weights=1 + 2.0**-23), SUMMED: Way(gradients=2.0)}
ALL = {ONE: Way(), **WAYS, **CONTROLS}
COLOURS = dict(zip(ALL, ("black", OURS, "#8338EC", MODEL, OTHER, "grey", "#C1121F"), strict=True))
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
    """Train as Caffe's example does; rank 0 writes the first iteration's gradients, all losses and the weights."""
    fields = {"base_lr": 0.001, "momentum": 0.9, "weight_decay": 0.004, "lr_policy": "multistep", "gamma": 0.1}
    fields |= {"stepvalue": [4 * ITERATIONS // 5], "max_iter": ITERATIONS, "random_seed": SEED}
    param = SolverParameter(snapshot_after_train=False, snapshot_prefix=str(folder / "s"), **fields)
    param.net_param.MergeFrom(net(folder))
    solver = scaffe.Solver(param, instances=Instances(str(way.instances), way.gather, oversubscribe=True))
    for blobs in solver.net.params.values():
        blobs[0].data[...] *= np.float32(way.weights)
    first: list[np.ndarray] = []

    def keep() -> None:
        diffs = [blob.diff for some in solver.net.params.values() for blob in some]
        for diff in diffs:
            diff[...] *= np.float32(way.gradients)
        if not first:
            first.append(np.concatenate([np.ravel(diff) for diff in diffs]))

    solver.add_callback(lambda: None, keep)
    losses = []
    for _ in range(ITERATIONS):
        solver.step(1)
        losses.append(float(f"{solver.losses.mean:.8g}"))
    if solver.world.is_root:
        solver.net.save(str(folder / "weights.caffemodel"))
        np.save(folder / "gradients.npy", first[0])
        (folder / "losses.json").write_text(json.dumps(losses))
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


def means(losses: list[float], length: int = SHOWN) -> np.ndarray:
    """Return the points of a loss curve: the means of so many iterations each."""
    return np.array(losses).reshape(-1, min(length, len(losses))).mean(1)


def distances(losses: list[float], one: list[float], length: int = SHOWN) -> np.ndarray:
    """Return how far each point of a loss curve is from another curve's, relative to the other's."""
    return np.abs(means(losses, length) / means(one, length) - 1)


def apart(losses: list[float], one: list[float], length: int = SHOWN) -> float:
    """Return the greatest of the distances of two loss curves."""
    return float(np.max(distances(losses, one, length)))


class SameGradients(Figure):
    """Ranks and instances compute what one solver computes."""

    id, rank = "numa-caffe-8", 0
    title = "n solvers of batch b / n have the gradients and the accuracy of one with b"
    source = "NUMA-Caffe, theorem 4.1 and figure 8; SingleCaffe, equation 4"
    paper = "error within 1.24 %, 8 solvers, CIFAR-10, after 40,000 iterations"
    inputs = (Input("accuracy", 1.24, "points", STATED, "NUMA-Caffe, section 4.1.1"),)
    unexplained = (
        "In two earlier setups (without a mean image, 360 or 1,000 test images, one with 10 times Caffe's rate) the "
        "gradients agreed, accuracies were up to 1.7 and 1.3 points apart. This is the nearest to Caffe's example.",
        "Loss curves: no way stays within 1 %, nor does one solver whose first weights are a rounding off: training is "
        "chaotic, and n solvers round their sums in another order than one. What tells right from wrong is the "
        "distance over that solver's: it is to be at most 2 for a right gradient, more for one of twice the size. But "
        "that solver is one draw, and is disturbed once, where n solvers round otherwise in each iteration: a right "
        "way can be above 2, as one is in this setup, where a wrong one is at 10.",
        "For a while the distance was taken over the first loss, some 10 times the last one, and passed at 1 %.",
        "SingleCaffe's equation 4 sums the workers' gradients, its sections IV.B and IV.C average them. The mean is "
        "right: each worker's loss is already the mean over its own samples, by equation 3.",
        "CIFAR-10 is not at hand: the images are scikit-learn's digits, enlarged to 3 x 32 x 32, each in other colours "
        "and noise; solver and net are those of Caffe's example. "
        f"{ITERATIONS} iterations with a batch of {BATCH} stand for the paper's 40,000, which take hours here.",
    )

    def measure(self) -> Data:
        """Return gradients' differences, loss curves and accuracies, by way."""
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            write_digits(folder)
            found = {name: self._train(folder, name) for name in ALL}
        gradients = {name: one.pop("gradients") for name, one in found.items()}
        differences = {name: difference(gradients[name], gradients[ONE]) for name in WAYS}
        return {"ways": found, "differences": differences}

    def _train(self, folder: Path, name: str) -> Data:
        lab.ranks(ALL[name].ranks, __file__, str(folder), name)
        losses = json.loads((folder / "losses.json").read_text())
        return {"gradients": np.load(folder / "gradients.npy"), "losses": losses, "accuracy": accuracy(folder)}

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check each way's gradients, loss curve and accuracy, and that a wrong gradient's curve is told from them."""
        if not measured:
            return
        ways = measured["ways"]
        one = ways[ONE]
        nudged = apart(ways[NUDGED]["losses"], one["losses"])
        for name, found in measured["differences"].items():
            far = apart(ways[name]["losses"], one["losses"])
            yield Check(f"{GATE}, {name}", found, high=LARGEST)
            yield Check(f"loss curves apart, {name}", far, high=0.01)
            yield Check(f"loss curves apart, {name}, times as far as {IN_WORDS[NUDGED]}", far / nudged, high=CHAOS)
            points = abs(ways[name]["accuracy"] - one["accuracy"])
            yield Check(f"points of accuracy apart, {name}", points, high=self.value("accuracy"))
        wrong = apart(ways[SUMMED]["losses"], one["losses"])
        what = f"loss curves apart, {IN_WORDS[SUMMED]}, times as far as {IN_WORDS[NUDGED]}"
        yield Check(what, wrong / nudged, low=CHAOS)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the greatest difference, and the accuracies."""
        ways = measured.get("ways", {})
        if not ways:
            return "", "-"
        scores = ", ".join(f"{one['accuracy']:.1f}" for name, one in ways.items() if name not in CONTROLS)
        text = f"gradients differ by {max(measured['differences'].values()):.1e} at most"
        text += f"; accuracy {scores} % after {ITERATIONS} iterations"
        one = ways[ONE]["losses"]
        for length in (SHOWN, SHORT):
            far = {name: apart(ways[name]["losses"], one, length) for name in (*WAYS, *CONTROLS)}
            controls = ", ".join(f"{IN_WORDS[name]} {far[name]:.1%}" for name in CONTROLS)
            text += f"; means of {length} losses apart: {max(far[name] for name in WAYS):.1%} at most, {controls}"
        return text, "-"

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw the loss curves, and how far they are from that of one solver."""
        left, right = figure.subplots(1, 2)
        one = measured["ways"][ONE]["losses"]
        at = SHOWN * (np.arange(len(means(one))) + 0.5)
        for name, found in measured["ways"].items():
            how: Data = {"color": COLOURS[name], "linewidth": 1, "marker": "."}
            left.plot(at, means(found["losses"]), label=f"{IN_WORDS.get(name, name)}: {found['accuracy']:.1f} %", **how)
            if name != ONE:
                right.semilogy(at, 100 * distances(found["losses"], one), **how)
        right.axhline(1, color="black", linestyle=":", linewidth=0.8, label="1 %")
        left.set(xlabel="iterations", ylabel=f"loss, mean of {SHOWN}", title="Loss, and accuracy at the end")
        right.set(xlabel="iterations", ylabel="% of its loss", title="From the loss of 1 solver")


FIGURE = SameGradients()

if __name__ == "__main__":
    train(Path(sys.argv[1]), ALL[sys.argv[2]])
