"""A run of Caffe's is followed: its batches, losses, weights, scores and the lines of its log."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from caffe_log import forms, numbers, parse, without_year
from conftest import environment

import scaffe
from scaffe.proto import blobs
from scaffe.proto.files import read_weights

GLOG_LINE = re.compile(r"[IWEF]\d{8} .*\] ")


@pytest.fixture(scope="module")
def folder(cases, tmp_path_factory):
    """A copy of the files that Caffe wrote, made the working directory, with a solver that overwrites none of them."""
    folder = tmp_path_factory.mktemp("caffe") / "artefacts"
    shutil.copytree(cases / "caffe" / "artefacts", folder, copy_function=shutil.copyfile)
    text = (folder / "quick_xavier_solver.prototxt").read_text()
    (folder / "solver.prototxt").write_text(text.replace('snapshot_prefix: "quick_xavier"', 'snapshot_prefix: "ours"'))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@pytest.fixture(scope="module")
def losses(folder):
    """The losses of 25 iterations from Caffe's initial weights."""
    solver = scaffe.get_solver("solver.prototxt")
    solver.copy_weights(["quick_xavier_init.caffemodel"])
    values = []
    for _ in range(25):
        solver.step(1)
        values.append(float(solver.net.blobs["loss"].data))
    solver.close()
    return values


def test_the_first_batch_is_caffes(folder):
    net = scaffe.Net("quick_xavier.prototxt", scaffe.TRAIN)
    net.forward(end="cifar")
    data, labels = np.load("quick_xavier_batch0_data.npy"), np.load("quick_xavier_batch0_label.npy")
    assert np.array_equal(net.blobs["data"].data[: len(data)], data)
    assert np.array_equal(net.blobs["label"].data, labels)
    net.close()


def test_the_losses_of_25_iterations_are_caffes(losses):
    caffes = np.load("quick_xavier_losses.npy")[:25]
    assert losses == pytest.approx(caffes, rel=1e-4)


def log_of(*arguments):
    """Return the log lines of a command."""
    command = [sys.executable, "-m", "scaffe", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=900, check=True)
    return run.stderr.splitlines()


def caffes_log(name):
    """Return the lines of a log of Caffe's that have a prefix, with that of the classic glog."""
    return [without_year(line) for line in Path(name).read_text().splitlines() if GLOG_LINE.match(line)]


@pytest.fixture(scope="module")
def resumed(folder):
    """The log of going on from Caffe's snapshot of iteration 25 to iteration 50."""
    return log_of("train", "--solver", "solver.prototxt", "--snapshot", "quick_xavier_iter_25.solverstate")


def test_the_weights_of_iteration_50_are_caffes(resumed):
    ours, caffes = read_weights("ours_iter_50.caffemodel"), read_weights("quick_xavier_iter_50.caffemodel")
    compared = 0
    for layer, caffes_layer in zip(ours.layer, caffes.layer, strict=True):
        assert (layer.name, layer.type) == (caffes_layer.name, caffes_layer.type)
        for blob, caffes_blob in zip(layer.blobs, caffes_layer.blobs, strict=True):
            values, expected = blobs.values(blob), blobs.values(caffes_blob)
            assert np.linalg.norm(values - expected) <= 1e-3 * np.linalg.norm(expected), layer.name
            compared += 1
    assert compared == 10


def without_start(forms_of_lines):
    """Leave out the lines of a run's start, and those of its readers, ours and Caffe's."""
    of_start = "Solving|Learning Rate|Restor|Restarting data|Reading:|snapshot_prefix"
    return [form for form in forms_of_lines if not re.match(of_start, form)]


def test_the_lines_of_the_log_have_the_form_and_order_of_caffes(resumed):
    theirs = caffes_log("quick_xavier.log")
    first = next(i for i, line in enumerate(theirs) if "Iteration 25, Testing net" in line)
    expected = without_start(forms(theirs[first:]))
    # The first display has no pace: nothing has been timed yet.
    expected[expected.index("Iteration 0 (0 iter/s, 0s/0 iters), loss = 0")] = "Iteration 0, loss = 0"
    assert expected.pop() == "Optimization Done."  # Caffe says it twice: the solver, and the tool
    start = next(i for i, line in enumerate(resumed) if "Solving" in line)
    assert without_start(forms(resumed[start:])) == expected


def test_caffes_tools_find_the_same_rows(resumed):
    for rows, caffes_rows in zip(parse(resumed), parse(caffes_log("quick_xavier.log")), strict=True):
        expected = [row for row in caffes_rows if row["NumIters"] >= 25]
        assert [row["NumIters"] for row in rows] == [row["NumIters"] for row in expected]
        for row, caffes in zip(rows, expected, strict=True):
            assert row.keys() == caffes.keys()
            assert row["loss"] == pytest.approx(caffes["loss"], rel=1e-3)
            assert row.get("accuracy") == caffes.get("accuracy")


def test_the_scores_of_a_test_are_caffes(folder):
    ours = log_of(
        "test", "--model", "quick_xavier.prototxt", "--weights", "quick_xavier_iter_25.caffemodel", "--iterations=5"
    )
    theirs = caffes_log("quick_xavier_test.log")
    first, caffes_first = (next(i for i, line in enumerate(log) if "Running for" in line) for log in (ours, theirs))
    ours, theirs = ours[first:], [line for line in theirs[caffes_first:] if "Restarting data" not in line]
    assert forms(ours) == forms(theirs)
    assert numbers(ours) == pytest.approx(numbers(theirs), rel=1e-4)
