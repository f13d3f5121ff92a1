"""The gate: gradients and loss curves of several solvers against those of one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from paper_figures import module

import scaffe
from scaffe import papers
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


def test_the_gate_accepts_the_mean_of_gradients_and_refuses_their_sum() -> None:
    gate = module("numa_caffe_8")
    random = np.random.default_rng(2)
    images, labels = random.normal(size=(8, 1, 28, 28)), random.integers(0, 10, 8)
    one = gradient(images, labels)
    parts = [gradient(images[k : k + 2], labels[k : k + 2]) for k in range(0, 8, 2)]
    same = {"losses": [1.0] * 40, "accuracy": 90.0}

    def gradients_agree(found: np.ndarray) -> bool:
        measured = {"ways": {gate.ONE: same, "4 ranks": same}, "differences": {"4 ranks": gate.difference(found, one)}}
        checks = [check.result() for check in gate.FIGURE.check(measured, {})]
        assert len(checks) == 3
        return not module("run").differ({"checks": checks})

    assert gradients_agree(np.mean(parts, axis=0))
    assert not gradients_agree(np.sum(parts, axis=0))
    assert module("run").differ({"checks": []})


def test_the_gate_refuses_another_loss_curve_and_another_accuracy() -> None:
    gate = module("numa_caffe_8")
    one = {"losses": [1.0] * 40, "accuracy": 90.0}
    for other in ({"losses": [1.0] + [1.02] * 39}, {"accuracy": 88.7}):
        measured = {"ways": {gate.ONE: one, "4 ranks": one | other}, "differences": {"4 ranks": 0.0}}
        assert [check.verdict for check in gate.FIGURE.check(measured, {})].count(papers.NOT_REPRODUCED) == 1


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
    assert gate.apart(losses[gate.NUDGED], losses[gate.ONE]) < 0.01 < gate.apart(losses[gate.SUMMED], losses[gate.ONE])
    same = {"losses": losses[gate.ONE], "accuracy": 90.0}
    ways = {gate.ONE: same, gate.SUMMED: same}
    (check,) = gate.FIGURE.check({"ways": ways, "differences": {}}, {})
    assert check.verdict == papers.NOT_REPRODUCED
