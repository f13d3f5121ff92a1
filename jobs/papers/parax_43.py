"""ParaX, section 4.3: how many instances an iteration can have before accuracy falls.

LeNet learns scikit-learn's digits, the data and the solver of jobs/quickstart.sh, with n instances of 64 images each:
as many epochs, so n times fewer iterations. The learning rate is that of one instance, or n times as much.

    mpirun -n 1 python parax_43.py FOLDER    trains all, and prints what `measure` returns; the digits go into FOLDER
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from math import log, nan
from typing import Any

import lab
import numpy as np
from drawing import MODEL, OURS, PAPER
from figure import ASSUMED, STATED, Data, Figure, Input, M
from verdicts import DIFFERS, REPRODUCED, SHAPE, Judged

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
ALMOST, LEAST = 0.5, 74.0  # points that are almost nothing; least accuracy of the picture
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

    id, tag = "parax-43", M
    inputs = (
        Input("batch", BATCH, "images of an instance", STATED, "section 4.3"),
        Input("epochs", EPOCHS, "", ASSUMED, "fewer than the quickstart's 18, so that accuracies differ"),
        Input("seeds", len(SEEDS), "", ASSUMED, "means of them"),
        Input("almost", ALMOST, "points lost at most", ASSUMED, "no number"),
    )

    def measure(self) -> Data:
        """Return accuracies and losses by rule of the rate and by number of instances, one for each seed."""
        with tempfile.TemporaryDirectory() as folder:
            found: Data = lab.ranks(1, __file__, folder)
        return found

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge what 4 instances lose: in shape where the scaled rate loses less than half of the same rate's."""
        lost = {rule: rows[0] - rows[1] for rule, rows in ((rule, means(measured[rule])) for rule in RULES)}
        verdict = REPRODUCED if lost[SCALED] <= ALMOST else SHAPE if lost[SCALED] < lost[SAME] / 2 else DIFFERS
        return Judged(verdict, f"{lost[SCALED]:.1f} points lost, {lost[SAME]:.1f} with the same rate; digits, LeNet")

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw accuracy against instances: means over the seeds, and each seed as a dot, or a cross at the bottom."""
        for rule, colour in zip(RULES, (MODEL, OURS), strict=True):
            axes.plot(COUNTS, means(measured[rule]), "o-", color=colour, label=f"measured, {rule}")
            for n, row in zip(COUNTS, measured[rule], strict=True):
                for one in row:
                    axes.plot([n], [max(one[0], LEAST)], "x" if diverged(one) else ".", color=colour)
        axes.plot([], [], "x", color=OURS, label="diverged")
        base = means(measured[SCALED])[0]
        axes.plot(COUNTS[:2], [base, base], "s--", color=PAPER, label="paper: almost unchanged to 4")
        axes.set(xlabel="instances of 64 images", ylabel="accuracy, %", xscale="log", ylim=(LEAST - 1, 100))
        axes.set_xticks(COUNTS, list(map(str, COUNTS)))
        axes.minorticks_off()


def diverged(one: Sequence[float]) -> bool:
    """Return whether an accuracy and a loss are those that `trained` returns for a training that diverged."""
    return tuple(one) == CHANCE


def means(rows: list[list[list[float]]]) -> list[float]:
    """Return the mean accuracies over the seeds by number of instances; nan where all diverged."""
    kept = [[one[0] for one in row if not diverged(one)] for row in rows]
    return [float(np.mean(each)) if each else nan for each in kept]


FIGURE = Accuracy()

if __name__ == "__main__":
    print(json.dumps(all_trained(sys.argv[1])))
