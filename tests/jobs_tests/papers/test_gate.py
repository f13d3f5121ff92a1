"""The gate: gradients and loss curves of several solvers against those of one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from paper_figures import missed, module

import scaffe
from scaffe.models import get

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]


def gradient(batch: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return LeNet's gradient on a batch, by a net of its own."""
    net = scaffe.Net(get("lenet").train_val(batch=len(batch), data="input"), phase=scaffe.TRAIN)
    random = np.random.default_rng(1)
    for blobs in net.params.values():
        for blob in blobs:
            blob.data[...] = random.normal(0, 0.05, blob.data.shape)
    net.blobs["data"].data[...], net.blobs["label"].data[...] = batch, labels
    net.forward()
    net.backward()
    found = np.concatenate([np.ravel(blob.diff).copy() for blobs in net.params.values() for blob in blobs])
    net.close()
    return found


def ways(**others: dict) -> dict:
    """Return measured ways with flat loss curves: one solver's, one a hundredth off, one far off, and `others`."""
    gate = module("numa_caffe_8")
    curves = {gate.ONE: 1.0, gate.NUDGED: 1.01, gate.SUMMED: 1.5}
    return {name: {"losses": [loss] * 200, "accuracy": 90.0} for name, loss in curves.items()} | others


def test_the_gate_accepts_the_mean_of_gradients_and_refuses_their_sum() -> None:
    gate = module("numa_caffe_8")
    random = np.random.default_rng(2)
    images, labels = random.normal(size=(8, 1, 28, 28)), random.integers(0, 10, 8)
    one = gradient(images, labels)
    parts = [gradient(images[k : k + 2], labels[k : k + 2]) for k in range(0, 8, 2)]

    def gradients_agree(found: np.ndarray) -> bool:
        measured = {"ways": ways(mine=ways()[gate.ONE]), "differences": {"mine": gate.difference(found, one)}}
        checks = [check.result() for check in gate.FIGURE.check(measured, {})]
        assert len(checks) == 5
        return not module("run").differ({"checks": checks})

    assert gradients_agree(np.mean(parts, axis=0))
    assert not gradients_agree(np.sum(parts, axis=0))
    assert module("run").differ({"checks": []})


def test_the_gate_refuses_another_loss_curve_and_another_accuracy() -> None:
    gate = module("numa_caffe_8")
    one = ways()[gate.ONE]
    late = [1.0] * 100 + [0.1] * 100
    for other, wanted in (
        ({"losses": [1.015] * 200}, ["loss curves apart, mine"]),
        (
            {"losses": [1.03] * 200},
            ["loss curves apart, mine", f"loss curves apart, mine, times as far as {gate.IN_WORDS[gate.NUDGED]}"],
        ),
        ({"accuracy": 88.7}, ["points of accuracy apart, mine"]),
    ):
        assert missed(gate, {"ways": ways(mine=one | other), "differences": {"mine": 0.0}}, {}) == wanted
    assert gate.apart(late[:100] + [0.102] * 100, late) == pytest.approx(0.02)  # of the loss there, not of the first


def test_a_sum_as_close_as_a_rounding_is_refused() -> None:
    gate = module("numa_caffe_8")
    assert not missed(gate, {"ways": ways(), "differences": {}}, {})
    close = ways() | {gate.SUMMED: ways()[gate.NUDGED]}
    summed, nudged = (gate.IN_WORDS[name] for name in (gate.SUMMED, gate.NUDGED))
    what = f"loss curves apart, {summed}, times as far as {nudged}"
    assert missed(gate, {"ways": close, "differences": {}}, {}) == [what]


def test_the_gate_in_short_one_solver_and_eight_instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    gate = module("numa_caffe_8")
    for name, value in {"ITERATIONS": 2, "IMAGES": 64, "TEST_IMAGES": 32}.items():
        monkeypatch.setattr(gate, name, value)
    gate.write_digits(tmp_path)
    found = []
    for instances in (1, 8):
        gate.train(tmp_path, gate.Way(instances=instances, gather="slices"))
        found.append((np.load(tmp_path / "gradients.npy"), json.loads((tmp_path / "losses.json").read_text())))
    (one, losses), (eight, others) = found
    assert 0 < gate.difference(eight, one) <= gate.LARGEST
    assert gate.difference(8 * eight, one) > 1
    assert others == pytest.approx(losses, rel=1e-4)


def test_loss_curves_tell_a_sum_from_a_mean_and_not_a_rounding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    gate = module("numa_caffe_8")
    for name, value in {"ITERATIONS": 40, "IMAGES": 640, "TEST_IMAGES": 32}.items():
        monkeypatch.setattr(gate, name, value)
    gate.write_digits(tmp_path)
    losses = {}
    for name in (gate.ONE, gate.NUDGED, gate.SUMMED):
        gate.train(tmp_path, gate.ALL[name])
        losses[name] = json.loads((tmp_path / "losses.json").read_text())
    nudged, summed = (gate.apart(losses[name], losses[gate.ONE]) for name in (gate.NUDGED, gate.SUMMED))
    assert 0 < nudged < 0.01 < summed
    assert not missed(gate, {"ways": {name: {"losses": each} for name, each in losses.items()}, "differences": {}}, {})
