"""The papers' nets learn the data that make-data makes; attention is what its equation says."""

import numpy as np
import pytest

import scaffe
from scaffe import cli, models
from scaffe.compute import Compute
from scaffe.errors import ScaffeError

TINY = {
    "word_lm": (dict(hidden=24, layers=2, steps=8), 60),
    "gnmt": (dict(hidden=24, layers=2, steps=5, source_words=10), 10),
    "ncf": (dict(users=20, items=16, factors=4), 1),
}


def made(name, tmp_path, monkeypatch):
    """Make data in the folder that the model reads; return the tiny model and its number of classes."""
    pytest.importorskip("h5py")
    monkeypatch.chdir(tmp_path)
    sizes, classes = TINY[name]
    model = models.get(name).sized(**sizes)
    folder = model.source.rpartition("/")[0]
    flags = ["--classes", str(classes), "--sizes", ",".join(f"{size}={n}" for size, n in sizes.items())]
    assert cli.main(["make-data", name, folder, "--rows", "2000", *flags]) == 0
    return model, classes


def losses(model, classes, iterations, batch, **fields):
    """Train on the data and return the loss of each iteration."""
    param = model.solver()
    for field in ("net", "test_iter", "test_interval", "lr_policy"):
        param.ClearField(field)
    fields = dict(base_lr=0.01, random_seed=1, display=0, snapshot=0, lr_policy="fixed") | fields
    for field, value in fields.items():
        setattr(param, field, value)
    param.net_param.CopyFrom(model.train_val(batch=batch, classes=classes))
    solver = scaffe.Solver(param, compute=Compute(engine="reference"))
    found = []
    for _ in range(iterations):
        solver.step(1)
        found.append(float(solver.net.loss()))
    solver.close()
    return np.array(found)


# Iterations, rate, batch, and what the mean loss of the last 5 iterations stays below.
RUNS = {
    "word_lm": (25, dict(base_lr=1.0), 24, 0.8),
    "gnmt": (60, dict(base_lr=0.02), 24, 0.8),
    "ncf": (80, dict(base_lr=0.01), 96, 0.6),
}


@pytest.mark.parametrize("name", TINY)
def test_the_loss_falls(name, tmp_path, monkeypatch):
    model, classes = made(name, tmp_path, monkeypatch)
    iterations, fields, batch, share = RUNS[name]
    found = losses(model, classes, iterations, batch, **fields)
    assert found[-5:].mean() < share * found[0]


def test_attention_is_the_papers_sum_over_the_words_of_the_source():
    sizes, classes = TINY["gnmt"]
    model = models.get("gnmt").sized(**sizes)
    net = scaffe.Net(model.train_val(batch=3, classes=classes, data="input"), scaffe.TEST)
    for name, rows in model.made_up(3, classes, np.random.default_rng(2)).items():
        net.blobs[name].data[...] = rows
    for blob in net.params["score"]:
        blob.data[...] *= 20  # weights far from equal ones
    net.forward()
    query, memory, source = (net.blobs[name].data for name in ("decoder1", "encoder2", "source"))
    (w_query, b_query), (w_keys,), (w_score,) = (
        [blob.data for blob in net.params[name]] for name in ("attention_query", "attention_keys", "score")
    )
    for sentence in range(3):
        words = memory[sentence][source[sentence] > 0]
        hidden = np.tanh((query[sentence] @ w_query.T + b_query)[:, None] + (words @ w_keys.T)[None])
        weights = np.exp(hidden @ w_score[0])
        expected = weights / weights.sum(axis=1, keepdims=True) @ words
        np.testing.assert_allclose(net.blobs["context"].data[sentence], expected, rtol=1e-4, atol=1e-6)


def test_gnmt_with_one_layer_is_refused():
    with pytest.raises(ScaffeError, match="gnmt needs 2 layers"):
        models.get("gnmt").sized(layers=1).train_val()
