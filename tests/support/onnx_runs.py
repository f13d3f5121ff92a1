"""Nets against their ONNX models, run by onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnxruntime

import scaffe
from scaffe.compute import Compute
from scaffe.onnx.model import model_of


def built(param) -> scaffe.Net:
    """Return a net that numpy computes, with random values where its fillers leave none."""
    net, rng = scaffe.Net(param, scaffe.TEST, compute=Compute(engine="reference")), np.random.default_rng(1)
    for layer in net.layers:
        if layer.type == "BatchNorm":
            mean, variance, weight = layer.blobs
            mean.data[...] = rng.normal(size=mean.shape) * 0.1
            variance.data[...] = rng.uniform(0.5, 1.5, variance.shape)
            weight.data[...] = 2
        elif layer.blobs and not layer.blobs[0].data.any():  # of a prototxt without fillers
            weights = layer.blobs[0].data
            weights[...] = rng.normal(size=weights.shape) / np.sqrt(weights[0].size or 1)
    return net


def inputs(net, seed=0, below: Mapping[str, int] | None = None) -> dict[str, np.ndarray]:
    """Return random inputs; those of `below` are whole numbers from 0 on."""
    rng, whole = np.random.default_rng(seed), below or {}
    shapes = {name: net.blobs[name].shape for name in net.inputs}
    drawn = {n: rng.integers(0, whole[n], s) if n in whole else rng.normal(size=s) for n, s in shapes.items()}
    return {name: values.astype(np.float32) for name, values in drawn.items()}


def run(model, given) -> dict[str, np.ndarray]:
    """Return a model's outputs by name, as onnxruntime computes them."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    wanted = {one.name: given[one.name] for one in model.graph.input}
    return dict(zip((one.name for one in session.get_outputs()), session.run(None, wanted), strict=True))


def difference(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> float:
    """Return the largest difference of two nets' outputs, as a part of the output's largest value."""
    assert sorted(ours) == sorted(theirs)
    assert {name: one.shape for name, one in ours.items()} == {name: one.shape for name, one in theirs.items()}
    parts = [np.abs(theirs[name] - one).max() / (np.abs(one).max() or 1) for name, one in ours.items() if one.size]
    assert np.isfinite(parts).all()
    return float(max(parts, default=0))


def compare(net, below: Mapping[str, int] | None = None, batches=(None, 5)) -> float:
    """Return the largest difference of a net from its model, also with other batches where its batch may be any."""
    model, worst = model_of(net), 0.0
    free = model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for batch in batches:
        if batch and not free:
            continue
        if batch:
            for name in net.inputs:
                net.blobs[name].reshape(batch, *net.blobs[name].shape[1:])
            net.reshape()
        given = inputs(net, below=below)
        worst = max(worst, difference(net.forward(**given), run(model, given)))
    return worst
