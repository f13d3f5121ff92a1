"""The advice of scaffe.proto.forks, followed: each net computes what the fork's layer does, against plain numpy.

Weights are those of the fork's layer: they copy where the advice says nothing else, or after the program that it names.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from google.protobuf import text_format

import scaffe
from scaffe.cli import parser
from scaffe.proto import NetParameter, SolverParameter, forks

INPUT = 'layer {{ name: "{0}" type: "Input" top: "{0}" input_param {{ shape {{ {1} }} }} }}\n'
X = np.random.default_rng(1).normal(size=(2, 4, 3, 3)).astype(np.float32)
CHANNELS = np.arange(1, 5, dtype=np.float32)


def built(layers: str, python: bool = False, **inputs: np.ndarray) -> scaffe.Net:
    """Return a net of these layers behind Inputs of these values."""
    heads = (INPUT.format(name, " ".join(f"dim: {n}" for n in array.shape)) for name, array in inputs.items())
    param = text_format.Parse("".join(heads) + layers, NetParameter())
    net = scaffe.Net(param, scaffe.TEST, compute=scaffe.Compute(device="cpu", allow_python_layers=python))
    for name, array in inputs.items():
        net.blobs[name].data[...] = array
    return net


def output(net: scaffe.Net) -> np.ndarray:
    (found,) = net.forward().values()
    return found


def written(path: Path, layers: Iterable[tuple[str, str, list[np.ndarray]]]) -> str:
    """Write weights: each layer's name, type and blobs."""
    net = NetParameter()
    for name, kind, blobs in layers:
        layer = net.layer.add(name=name, type=kind)
        for blob in blobs:
            layer.blobs.add(data=blob.reshape(-1).tolist()).shape.dim.extend(blob.shape)
    path.write_bytes(net.SerializeToString())
    return str(path)


def advice(kind: str) -> str:
    row = forks.of_type(kind)
    assert row is not None
    return row.use


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


class Normalize:
    """SSD's: divide by the norm over the channels, multiply by a learned scale."""

    def setup(self, bottom, top) -> None:
        self.blobs.add_blob(4)

    def reshape(self, bottom, top) -> None:
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top) -> None:
        x = bottom[0].data
        top[0].data[...] = x / np.sqrt((x * x).sum(1, keepdims=True)) * self.blobs[0].data.reshape(1, 4, 1, 1)

    def backward(self, top, propagate_down, bottom) -> None:
        pass


@pytest.fixture
def ours(monkeypatch):
    """The module of Python layers that a user writes."""
    module = ModuleType("of_a_user")
    module.Normalize, module.__file__ = Normalize, "of_a_user.py"
    monkeypatch.setitem(sys.modules, "of_a_user", module)


PYTHON = 'python_param {{ module: "of_a_user" layer: "{}" }} }}'


def test_a_python_layer_takes_the_weights_of_the_layer_whose_place_it_has(ours, tmp_path) -> None:
    assert advice("ROIAlign") == forks.PYTHON
    net = built('layer { name: "n" type: "Python" bottom: "x" top: "n" ' + PYTHON.format("Normalize"), True, x=X)
    net.copy_from(written(tmp_path / "w.caffemodel", [("n", "Normalize", [CHANNELS])]))
    close(output(net), X / np.sqrt((X**2).sum(1, keepdims=True)) * CHANNELS[:, None, None])


NORMS = (
    'layer { name: "bn" type: "BatchNorm" bottom: "x" top: "bn" batch_norm_param { eps: 1e-5 } }'
    'layer { name: "scale" type: "Scale" bottom: "bn" top: "y" scale_param { bias_term: true } }'
)
MEAN, VARIANCE, GAIN, SHIFT = CHANNELS / 7, CHANNELS, 2 + CHANNELS, CHANNELS - 3
ONE = np.ones(1, np.float32)


def normed() -> np.ndarray:
    mean, variance, gain, shift = (one[:, None, None] for one in (MEAN, VARIANCE, GAIN, SHIFT))
    return (X - mean) / np.sqrt(variance + 1e-5) * gain + shift


def read(path: str) -> NetParameter:
    return NetParameter.FromString(Path(path).read_bytes())


def test_batch_norm_of_nvcaffe_or_intel(tmp_path) -> None:
    fork = written(tmp_path / "fork.caffemodel", [("bn", "BatchNorm", [MEAN, VARIANCE, ONE, GAIN, SHIFT])])
    net = built(NORMS, x=X)
    with pytest.raises(scaffe.ScaffeError, match="a program must move blobs 3 and 4 to the Scale layer"):
        net.copy_from(fork)
    stored = read(fork)
    stored.layer.add(name="scale", type="Scale").blobs.extend(stored.layer[0].blobs[3:])
    del stored.layer[0].blobs[3:]
    (tmp_path / "ours.caffemodel").write_bytes(stored.SerializeToString())
    net.copy_from(str(tmp_path / "ours.caffemodel"))
    close(output(net), normed())


def test_a_fixed_normalizer_of_intel() -> None:
    row = forks.of_field("LossParameter", "pre_fixed_normalizer")
    assert row is not None and row.use == "use normalization: NONE, and as loss_weight 1 / pre_fixed_normalizer"
    fields = "loss_param { normalization: NONE }"
    loss = f'layer {{ name: "l" type: "SoftmaxWithLoss" bottom: "x" bottom: "y" top: "l" {fields} }}'
    scores, labels = X[:, :, 0, 0], np.array([1, 3], np.float32)
    sums = -np.log(np.exp(scores)[[0, 1], [1, 3]] / np.exp(scores).sum(1)).sum()
    close(output(built(loss, x=scores, y=labels)), sums)  # which the fork divides by its number


@pytest.mark.parametrize("row", forks.ROWS, ids=lambda row: (row.types or row.fields)[:30])
def test_what_an_advice_names_is_here(row: forks.Fork) -> None:
    commands = parser()._commands
    assert commands is not None
    flags = {flag for command in commands.choices.values() for flag in command._flags}
    assert {flag for flag in re.findall(r"--([\w-]+)", row.use)} <= flags
    types = {*scaffe.layers.known_types()}
    words = {*re.findall(r"\b[A-Z][A-Za-z]+[a-z]\b", row.use)} - {"Python"}
    assert words <= types
    if row.fields.startswith("SolverParameter"):
        fields = SolverParameter.DESCRIPTOR.fields_by_name
        assert all(name in fields for name in re.findall(r"\b[a-z]+_[a-z_]+\b", row.use))
