"""NUMA-Caffe, theorem 4.1 and figure 8; SingleCaffe, equation 4: the same gradients, the same accuracy. The gate.

    mpirun -n P python numa_caffe_8.py FOLDER INSTANCES NUDGE    trains; rank 0 writes what it found into FOLDER

One solver with batch b is compared with n solvers of b / n each: instances of one process, or ranks.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
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
ONE, WAYS = "1 solver", {"8 instances": (1, 8), "4 ranks": (4, 1), "2 ranks of 2": (2, 2)}  # ranks, instances
NUDGED = "1 solver, weights a rounding off"  # the control: how far apart rounding alone drives two trainings
COLOURS = {ONE: "black", "8 instances": OURS, "4 ranks": MODEL, "2 ranks of 2": OTHER, NUDGED: "grey"}
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


def train(folder: Path, instances: int, nudge: float) -> None:
    """Train as Caffe's example does; rank 0 writes the first iteration's gradients, all losses and the weights.

    The first weights are 1 + `nudge` times what they would be.
    """
    fields = {"base_lr": 0.001, "momentum": 0.9, "weight_decay": 0.004, "lr_policy": "multistep", "gamma": 0.1}
    fields |= {"stepvalue": [4 * ITERATIONS // 5], "max_iter": ITERATIONS, "random_seed": SEED}
    param = SolverParameter(snapshot_after_train=False, snapshot_prefix=str(folder / "s"), **fields)
    param.net_param.MergeFrom(net(folder))
    solver = scaffe.Solver(param, instances=Instances(str(instances), oversubscribe=True))
    for blobs in solver.net.params.values():
        blobs[0].data[...] *= np.float32(1 + nudge)
    first: list[np.ndarray] = []

    def keep() -> None:
        if not first:
            blobs = [blob.diff for some in solver.net.params.values() for blob in some]
            first.append(np.concatenate([np.ravel(diff) for diff in blobs]))

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


def means(losses: list[float]) -> np.ndarray:
    """Return the means of 20 consecutive losses."""
    return np.convolve(losses, np.ones(20) / 20, "valid")


def apart(losses: list[float], one: list[float]) -> float:
    """Return the greatest relative difference of two loss curves, each the means of 20 iterations."""
    curves = means(losses), means(one)
    return float(np.max(np.abs(curves[0] - curves[1]) / curves[1]))


class SameGradients(Figure):
    """Ranks and instances compute what one solver computes."""

    id, rank = "numa-caffe-8", 0
    title = "n solvers of batch b / n have the gradients and the accuracy of one with b"
    source = "NUMA-Caffe, theorem 4.1 and figure 8; SingleCaffe, equation 4"
    paper = "error within 1.24 %, 8 solvers, CIFAR-10, after 40,000 iterations"
    inputs = (Input("accuracy", 1.24, "points", STATED, "NUMA-Caffe, section 4.3"),)
    unexplained = (
        "In two earlier setups (without a mean image, 360 or 1,000 test images, one with 10 times Caffe's rate) the "
        "gradients agreed, accuracies were up to 1.7 and 1.3 points apart. This is the nearest to Caffe's example.",
        "Training is chaotic: one solver whose first weights are off by a rounding leaves the loss curve too, as n "
        "solvers do, whose sums are rounded in another order. So no system's curves stay within 1 % in float32.",
        "SingleCaffe's equation 4 sums the gradients of the workers, its text averages them. The mean is right: each "
        "worker's loss is already the mean over its own samples.",
        "CIFAR-10 is not at hand: the images are scikit-learn's digits, enlarged to 3 x 32 x 32, each in other colours "
        "and noise; solver and net are those of Caffe's example. "
        f"{ITERATIONS} iterations with a batch of {BATCH} stand for the paper's 40,000, which take hours here.",
    )

    def measure(self) -> Data:
        """Return gradients' differences, loss curves and accuracies, by way."""
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            write_digits(folder)
            ways = {ONE: (1, 1), **WAYS, NUDGED: (1, 1, 2.0**-23)}
            found = {name: self._train(folder, *how) for name, how in ways.items()}
        gradients = {name: one.pop("gradients") for name, one in found.items()}
        differences = {name: difference(gradients[name], gradients[ONE]) for name in WAYS}
        return {"ways": found, "differences": differences}

    def _train(self, folder: Path, ranks: int, instances: int, nudge: float = 0.0) -> Data:
        lab.ranks(ranks, __file__, str(folder), str(instances), str(nudge))
        losses = json.loads((folder / "losses.json").read_text())
        return {"gradients": np.load(folder / "gradients.npy"), "losses": losses, "accuracy": accuracy(folder)}

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check each way's gradients, loss curve and accuracy."""
        for name, found in measured.get("differences", {}).items():
            mine, one = measured["ways"][name], measured["ways"][ONE]
            yield Check(f"{GATE}, {name}", found, high=LARGEST)
            yield Check(f"loss curves apart, {name}", apart(mine["losses"], one["losses"]), high=0.01)
            points = abs(mine["accuracy"] - one["accuracy"])
            yield Check(f"points of accuracy apart, {name}", points, high=self.value("accuracy"))

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the greatest difference, and the accuracies."""
        ways = measured.get("ways", {})
        scores = ", ".join(f"{one['accuracy']:.1f}" for one in ways.values())
        control = apart(ways[NUDGED]["losses"], ways[ONE]["losses"]) if ways else 0.0
        worst = max(measured.get("differences", {"": 0.0}).values())
        text = f"gradients differ by {worst:.1e} at most; accuracy {scores} % after {ITERATIONS} iterations"
        return f"{text}; loss curves of one solver, weights a rounding off, are {control:.0%} apart", "-"

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw the loss curves, and how far they are from that of one solver."""
        left, right = figure.subplots(1, 2)
        one = np.array(measured["ways"][ONE]["losses"])
        for name, found in measured["ways"].items():
            colour = COLOURS[name]
            left.plot(
                means(found["losses"]),
                color=colour,
                linewidth=1,
                zorder=2 - (name == NUDGED),
                label=f"{name}: {found['accuracy']:.1f} %",
            )
            if name != ONE:
                right.semilogy(np.abs(np.array(found["losses"]) - one) / one + 1e-9, color=colour, linewidth=0.7)
        left.set(xlabel="iterations", ylabel="loss, mean of 20", title="Loss, and accuracy at the end")
        right.set(xlabel="iterations", ylabel="relative difference", title="From the loss of 1 solver")
        left.legend(frameon=False)


FIGURE = SameGradients()

if __name__ == "__main__":
    train(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
