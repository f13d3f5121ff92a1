"""The gate: gradients of several solvers against those of one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from paper_figures import module

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


def test_the_gate_accepts_the_mean_of_gradients_and_refuses_their_sum() -> None:
    gate, verdicts = module("numa_caffe_8"), module("verdicts")
    random = np.random.default_rng(2)
    images, labels = random.normal(size=(8, 1, 28, 28)), random.integers(0, 10, 8)
    one = gradient(images, labels)
    parts = [gradient(images[k : k + 2], labels[k : k + 2]) for k in range(0, 8, 2)]
    for found, verdict in ((np.mean(parts, axis=0), verdicts.REPRODUCED), (np.sum(parts, axis=0), verdicts.DIFFERS)):
        accuracy = dict.fromkeys((gate.ONE, *gate.WAYS), 90.0)
        measured = {"accuracy": accuracy, "differences": {"mine": gate.difference(found, one)}}
        assert gate.FIGURE.judge(measured, {}).verdict == verdict


def test_the_gate_in_short_one_solver_and_eight_instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    gate = module("numa_caffe_8")
    for name, value in {"ITERATIONS": 2, "IMAGES": 64, "TEST_IMAGES": 32}.items():
        monkeypatch.setattr(gate, name, value)
    gate.write_digits(tmp_path)
    found = []
    for instances in (1, 8):
        gate.train(tmp_path, gate.Way(instances=instances, gather="slices"))
        found.append(np.load(tmp_path / "gradients.npy"))
        assert 0 <= gate.accuracy(tmp_path) <= 100
    one, eight = found
    assert 0 < gate.difference(eight, one) <= gate.LARGEST
    assert gate.difference(8 * eight, one) > 1
