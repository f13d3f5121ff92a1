"""--patience: training stops when the held-out loss no longer falls, and the best weights are kept."""

from __future__ import annotations

import numpy as np
import pytest

import scaffe
from readers import encode, write_lmdb
from scaffe.cli import main
from scaffe.errors import ScaffeError
from scaffe.proto import SolverParameter
from scaffe.training.patience import Patience, best_path

NET = """
layer {{ name: "d" type: "Data" top: "data" top: "label" include {{ phase: TRAIN }}
  transform_param {{ scale: 0.00390625 }} data_param {{ source: "train" batch_size: 10 }} }}
layer {{ name: "d" type: "Data" top: "data" top: "label" include {{ phase: TEST }}
  transform_param {{ scale: 0.00390625 }} data_param {{ source: "test" batch_size: 10 }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param {{ num_output: 4 weight_filler {{ type: "gaussian" std: 0.01 }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" {include} }}
"""
SOLVER = (
    'net: "net.prototxt" base_lr: 0.05 lr_policy: "fixed" max_iter: 100 test_iter: 2 test_interval: 5 '
    'snapshot_prefix: "snap" random_seed: 3 test_initialization: false display: 0 '
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder whose training learns noise by heart: the held-out loss rises."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name in ("train", "test"):
        images = rng.integers(0, 256, (20, 1, 6, 6)).astype(np.uint8)
        write_lmdb(name, ((b"%04d" % i, encode(image, i % 4)) for i, image in enumerate(images)))
    (tmp_path / "net.prototxt").write_text(NET.format(include=""))
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    return tmp_path


def loss_of(weights):
    net = scaffe.Net("net.prototxt", scaffe.TEST, weights=weights)
    return np.mean([float(net.forward()["loss"]) for _ in range(2)])


def test_the_best_weights_are_kept_and_training_stops(folder, capfd):
    assert main(["train", "--solver", "solver.prototxt", "--patience", "3"]) == 0
    told = capfd.readouterr().err
    losses = [float(line.split("loss = ")[1].split()[0]) for line in told.splitlines() if "Test net output" in line]
    best = int(np.argmin(losses))
    assert len(losses) == best + 1 + 3, "three tests after the best"
    assert len(losses) < 20 and "Optimization stopped early" in told
    assert loss_of("snap_best.caffemodel") == pytest.approx(min(losses), rel=1e-5)
    assert f"at iteration {5 * (best + 1)}: training stops" in told


def test_without_patience_nothing_is_kept(folder):
    assert main(["train", "--solver", "solver.prototxt"]) == 0
    assert not (folder / "snap_best.caffemodel").exists()


@pytest.mark.parametrize(
    ("net", "solver", "said"),
    [
        (NET.format(include=""), SOLVER.replace("test_iter: 2 test_interval: 5", ""), "tests nothing; give test_iter"),
        (NET.format(include="include { phase: TRAIN }"), SOLVER, "the test net has no loss"),
    ],
)
def test_what_is_missing_is_one_line(folder, capfd, net, solver, said):
    (folder / "net.prototxt").write_text(net)
    (folder / "solver.prototxt").write_text(solver)
    assert main(["train", "--solver", "solver.prototxt", "--patience", "3"]) == 2
    *_, line = capfd.readouterr().err.splitlines()
    assert line.startswith("scaffe: --patience 3: ") and said in line


def test_equal_losses_and_nan_are_no_better():
    patience, kept = Patience(2), []
    takes = [
        patience.take(i, loss, lambda: kept.append(1) or "best") for i, loss in enumerate([1, 1, 0.5, float("nan")])
    ]
    assert takes == [False] * 4 and len(kept) == 2
    assert patience.take(4, 0.5, str) and patience.best_at == 2


def test_the_same_test_again_counts_once():
    patience = Patience(1)
    assert not patience.take(5, 1.0, str) and not patience.take(5, 1.0, str)
    assert patience.since == 0


def test_the_best_weights_have_the_format_of_the_snapshots():
    param = SolverParameter(snapshot_prefix="a/b")
    assert best_path(param) == "a/b_best.caffemodel"
    param.snapshot_format = SolverParameter.HDF5
    assert best_path(param) == "a/b_best.caffemodel.h5"
    with pytest.raises(ScaffeError, match="snapshot_prefix"):
        best_path(SolverParameter())
