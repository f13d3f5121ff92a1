"""scaffe test on one rank: the scores that it logs are those of the net's own passes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from bad_input import trainable, trained

import scaffe
from scaffe.cli import main

ITERATIONS = 3


@pytest.fixture
def folder(tmp_path, monkeypatch):
    folder = trainable(tmp_path, monkeypatch)
    trained(folder)
    return folder


def test_the_scores_are_the_means_over_the_batches(folder, capsys):
    capsys.readouterr()
    flags = ["--weights", "snap_iter_4.caffemodel", "--iterations", str(ITERATIONS)]
    assert main(["test", "--model", "net.prototxt", *flags]) == 0
    logged = capsys.readouterr().err
    net = scaffe.Net("net.prototxt", "snap_iter_4.caffemodel", scaffe.TEST)
    losses = [float(net.forward()["loss"]) for _ in range(ITERATIONS)]
    net.close()
    batches = [float(text) for text in re.findall(r"Batch \d+, loss = (\S+)", logged)]
    np.testing.assert_allclose(batches, losses, rtol=1e-5)
    (mean,) = re.findall(r"\] Loss: (\S+)", logged)
    assert float(mean) == pytest.approx(np.mean(losses), rel=1e-5)


def test_weights_are_required(folder, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["test", "--model", "net.prototxt"])
    assert "--weights" in capsys.readouterr().err
