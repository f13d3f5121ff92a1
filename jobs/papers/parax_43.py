"""ParaX, section 4.3: how many instances an iteration can have before accuracy falls.

LeNet learns scikit-learn's digits, the data and the solver of jobs/quickstart.sh, with n instances of 64 images each:
as many epochs, so n times fewer iterations. The learning rate is that of one instance, or n times as much.

    mpirun -n 1 python parax_43.py FOLDER    trains all, and prints what `measure` returns; the digits go into FOLDER
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from math import isnan, log, nan
from typing import Any

import lab
import numpy as np
from drawing import curves
from figure import ASSUMED, FITTED, MODEL, OURS, STATED, Check, Data, Figure, Input

import scaffe
from readers import convert_digits
from scaffe import models
from scaffe.errors import DivergedError
from scaffe.parallel.instances.instances import Instances
from scaffe.proto import NetParameter, SolverParameter

COUNTS, SEEDS, EPOCHS = (1, 4, 16), (1, 2, 3), 8
BATCH, DIGITS, HELD_OUT, TEST_BATCH = 64, 1437, 360, 60
RATE = 0.02  # of jobs/lenet/solver.prototxt, for 64 images
SAME, SCALED = "same rate", "rate times n"
RULES = {SAME: lambda n: RATE, SCALED: lambda n: n * RATE}
CHANCE = 10.0, log(10)  # accuracy (%) and loss of weights that know nothing


def net(sources: tuple[str, str], batch: int) -> NetParameter:
    """Return LeNet over the databases of digits to train and to test on."""
    param = models.get("lenet").train_val()
    for layer, source, images in zip(param.layer, sources, (batch, TEST_BATCH), strict=False):
        layer.data_param.source, layer.data_param.batch_size = source, images
    return param


def trained(sources: tuple[str, str], n: int, rate: float, seed: int) -> tuple[float, float]:
    """Return accuracy (%) and loss on the held-out digits after EPOCHS with n instances; CHANCE where it diverges."""
    param = net(sources, n * BATCH)
    iterations = max(1, round(EPOCHS * DIGITS / (n * BATCH)))
    fields: dict[str, Any] = {"lr_policy": "poly", "power": 1, "momentum": 0.9, "weight_decay": 0.0005}
    fields |= {"base_lr": rate, "max_iter": iterations, "random_seed": seed, "snapshot_after_train": False}
    solver = scaffe.Solver(SolverParameter(net_param=param, **fields), instances=Instances(str(n), oversubscribe=True))
    try:
        solver.step(iterations)
    except DivergedError:
        solver.close()
        return CHANCE
    test = scaffe.Net(param, scaffe.TEST)
    test.share_with(solver.net)
    found = []
    for _ in range(HELD_OUT // TEST_BATCH):
        outputs = test.forward()
        found.append((100 * float(outputs["accuracy"]), float(outputs["loss"])))
    test.close()
    solver.close()
    accuracy, loss = np.mean(found, 0)
    return float(accuracy), float(loss)


def all_trained(folder: str) -> dict[str, list[list[tuple[float, float]]]]:
    """Return accuracies and losses by rule, number of instances and seed."""
    sources = convert_digits(folder)
    return {
        rule: [[trained(sources, n, rate(n), seed) for seed in SEEDS] for n in COUNTS] for rule, rate in RULES.items()
    }


class Accuracy(Figure):
    """Accuracy after the same epochs with larger batches of all instances together."""

    id, rank = "parax-43", 20
    title = "Accuracy after the same number of epochs, with more instances of 64 images"
    source = "ParaX, section 4.3"
    paper = "4 instances with a rate scaled by 4 keep the accuracy, too many lower it"
    inputs = (
        Input("instances", 4, "", STATED, "section 4.3: k = 4 for each node, of 7 cores each"),
        Input("batch", BATCH, "images of an instance", STATED, "section 4.3"),
        Input("epochs", EPOCHS, "", FITTED, "chosen so that the accuracies differ; the quickstart has 18"),
        Input("almost the same", 1.0, "points of accuracy", ASSUMED, "the text has no number"),
    )
    unexplained = (
        "A training that diverges has no accuracy. It is kept as chance, 10 % and a loss of 2.3, and counted apart, in "
        "no mean. All with 16 instances and 16 times the rate diverge: by the rate that is scaled with them. The paper "
        "warns of a lower accuracy, not of this, so that its claim for too many instances is not measured.",
        "Section 4.3 claims nothing for a rate that stays the same: its accuracies are in the words alone.",
        "The number of epochs was chosen so that 16 instances lose accuracy: that they do, or diverge, is no evidence.",
        "The paper quotes this from others, for ImageNet and nets with batch normalisation. Digits and LeNet stand for "
        "them: 1,437 images, so 16 instances take 11 steps in 8 epochs.",
        "Of its two reasons, too large a batch and too few images in an instance, only the first is tried: LeNet has "
        "no batch statistics.",
    )

    def measure(self) -> Data:
        """Return accuracies and losses by rule of the rate and by number of instances, one for each seed."""
        with tempfile.TemporaryDirectory() as folder:
            found: Data = lab.ranks(1, __file__, folder)
        return found

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check that 4 instances train and keep the accuracy at 4 times the rate, and that 16 lose some or diverge."""
        if not measured:
            return
        one, four, many = measured[SCALED]
        _, middle, _ = means(measured[SCALED], 0)
        most = self.value("almost the same")
        yield Check("rate times n: trainings with 4 instances that diverge", gone(four), high=0)
        yield lost("rate times n: accuracy lost with 4 instances, points", one, four, high=most)
        yield lost("rate times n: accuracy lost with 16, beyond 4's, points", four, many, low=0.0, fitted=True)
        what = (
            f"rate times n: of {len(many)} trainings with 16 instances, those that diverge or end below the mean of 4"
        )
        yield Check(
            what, gone(many) + sum(each[0] < middle for each in many if not diverged(each)), len(many), fitted=True
        )

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the accuracies, and how many trainings diverge."""
        text = "; ".join(f"{rule} " + ", ".join(in_short(row) for row in rows) for rule, rows in measured.items())
        return f"accuracy with 1, 4, 16 instances, %: {text}", "-"

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw accuracy and loss against instances: means over the seeds, and each seed as a dot, or a cross."""
        if not measured:
            return
        for k, (axes, what) in enumerate(zip(figure.subplots(1, 2), ("accuracy, %", "loss"), strict=True)):
            curves(axes, COUNTS, {rule: means(rows, k) for rule, rows in measured.items()}, (OURS, MODEL), "o-")
            for rows, colour in zip(measured.values(), (OURS, MODEL), strict=False):
                for n, row in zip(COUNTS, rows, strict=True):
                    for one in row:
                        axes.plot([n], [one[k]], "x" if diverged(one) else ".", color=colour, markersize=6)
            if any(diverged(one) for rows in measured.values() for row in rows for one in row):
                axes.plot([], [], "x", color="grey", label="diverged, drawn at chance")
            axes.set(
                xlabel="instances of 64 images", ylabel=what, xscale="log", title=f"measured, {EPOCHS} epochs (fitted)"
            )
            axes.set_xticks(COUNTS, COUNTS)
            axes.minorticks_off()
        axes.set_yscale("log")


def diverged(one: Sequence[float]) -> bool:
    """Return whether an accuracy and a loss are those that `trained` returns for a training that diverged."""
    return tuple(one) == CHANCE


def gone(row: list[list[float]]) -> int:
    """Return how many trainings of a row diverged."""
    return sum(map(diverged, row))


def means(rows: list[list[list[float]]], which: int) -> list[float]:
    """Return the means over the seeds of accuracy (0) or loss (1), by number of instances; nan where all diverged."""
    kept = [[one[which] for one in row if not diverged(one)] for row in rows]
    return [float(np.mean(each)) if each else nan for each in kept]


def lost(what: str, few: list[list[float]], many: list[list[float]], **bounds: Any) -> Check:
    """Return the check of the accuracy that is lost between two rows; of a row that diverged it is not measured."""
    before, after = means([few, many], 0)
    if isnan(before) or isnan(after):
        row = many if isnan(after) else few
        return Check(what, None, why=f"{gone(row)} of {len(row)} trainings diverged", **bounds)
    return Check(what, before - after, **bounds)


def in_short(row: list[list[float]]) -> str:
    """Return the mean accuracy of the seeds, and how many of them diverged."""
    (mean,) = means([row], 0)
    if not gone(row):
        return f"{mean:.1f}"
    text = f"{gone(row)} of {len(row)} diverged"
    return text if isnan(mean) else f"{mean:.1f} ({text})"


FIGURE = Accuracy()

if __name__ == "__main__":
    print(json.dumps(all_trained(sys.argv[1])))
