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
from scaffe.proto import LayerParameter, NetParameter, SolverParameter, forks

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


def advice(kind: str, *seen: str) -> str:
    row = forks.of_type(kind, seen)
    assert row is not None
    return row.use


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_axpy_of_senet() -> None:
    assert advice("Axpy") == "use Reshape of the factors to N x C, Scale of two bottoms with axis: 0, and Eltwise"
    factors, y = X[:, :, :1, :1] + 1, X[::-1].copy()
    net = built(
        'layer { name: "r" type: "Reshape" bottom: "a" top: "r" reshape_param { shape { dim: 0 dim: -1 } } }'
        'layer { name: "s" type: "Scale" bottom: "x" bottom: "r" top: "s" scale_param { axis: 0 } }'
        'layer { name: "e" type: "Eltwise" bottom: "s" bottom: "y" top: "e" }',
        a=factors, x=X, y=y,
    )  # fmt: skip
    close(output(net), factors * X + y)


def test_upsample_of_yolo(tmp_path: Path) -> None:
    assert advice("Upsample", "bottoms-1") == forks.NEAREST
    net = built(
        'layer { name: "up" type: "Deconvolution" bottom: "x" top: "up" param { lr_mult: 0 } convolution_param {'
        "num_output: 4 group: 4 kernel_size: 2 stride: 2 bias_term: false weight_filler { value: 1 } } }",
        x=X,
    )
    net.copy_from(written(tmp_path / "w.caffemodel", [("other", "Convolution", [CHANNELS])]))
    close(output(net), X.repeat(2, 2).repeat(2, 3))


class Unpool:
    """Put each value to the place that the mask names."""

    def setup(self, bottom, top) -> None:
        pass

    def reshape(self, bottom, top) -> None:
        top[0].reshape(*bottom[0].data.shape[:2], 4, 4)

    def forward(self, bottom, top) -> None:
        flat = top[0].data.reshape(2, 4, 16)
        flat[...] = 0
        places = bottom[1].data.reshape(2, 4, -1).astype(int)
        np.put_along_axis(flat, places, bottom[0].data.reshape(2, 4, -1), 2)

    def backward(self, top, propagate_down, bottom) -> None:
        pass


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
    module.Unpool, module.Normalize, module.__file__ = Unpool, Normalize, "of_a_user.py"
    monkeypatch.setitem(sys.modules, "of_a_user", module)


PYTHON = 'python_param {{ module: "of_a_user" layer: "{}" }} }}'


def test_upsample_of_segnet_by_a_python_layer(ours) -> None:
    for seen in (["bottoms-2"], ["bottoms-1", "upsample_h"], ["bottoms-2", "scale"]):
        assert forks.PYTHON in advice("Upsample", *seen) and "mask" in advice("Upsample", *seen)
    x = np.pad(X, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=-9)
    net = built(
        'layer { name: "p" type: "Pooling" bottom: "x" top: "p" top: "mask" '
        "pooling_param { kernel_size: 2 stride: 2 } }"
        'layer { name: "u" type: "Python" bottom: "p" bottom: "mask" top: "u" ' + PYTHON.format("Unpool"),
        python=True, x=x,
    )  # fmt: skip
    windows = x.reshape(2, 4, 2, 2, 2, 2).max((3, 5)).repeat(2, 2).repeat(2, 3)
    np.testing.assert_array_equal(output(net), np.where(x == windows, x, 0))


def test_a_python_layer_takes_the_weights_of_the_layer_whose_place_it_has(ours, tmp_path) -> None:
    assert advice("Normalize") == forks.PYTHON
    net = built('layer { name: "n" type: "Python" bottom: "x" top: "n" ' + PYTHON.format("Normalize"), True, x=X)
    net.copy_from(written(tmp_path / "w.caffemodel", [("n", "Normalize", [CHANNELS])]))
    close(output(net), X / np.sqrt((X**2).sum(1, keepdims=True)) * CHANNELS[:, None, None])


def test_l2_normalization() -> None:
    assert advice("L2Normalization") == forks.L2
    net = built(
        'layer { name: "q" type: "Reduction" bottom: "x" top: "q" reduction_param { operation: SUMSQ axis: 1 } }'
        'layer { name: "r" type: "Power" bottom: "q" top: "r" power_param { power: -0.5 } }'
        'layer { name: "s" type: "Scale" bottom: "x" bottom: "r" top: "s" scale_param { axis: 0 } }',
        x=X,
    )
    close(output(net), X / np.sqrt((X**2).sum((1, 2, 3), keepdims=True)))


def test_relu6() -> None:
    assert advice("ReLU6") == "use Clip with min: 0 and max: 6"
    net = built('layer { name: "c" type: "Clip" bottom: "x" top: "c" clip_param { min: 0 max: 6 } }', x=X * 9)
    close(output(net), np.minimum(np.maximum(X * 9, 0), 6))


def test_shuffle_channel() -> None:
    assert "Slice into single channels, and Concat in their new order" in advice("ShuffleChannel")
    tops = " ".join(f'top: "c{i}"' for i in range(4))
    order = [0, 2, 1, 3]  # of 2 groups of 2 channels
    net = built(
        f'layer {{ name: "s" type: "Slice" bottom: "x" {tops} }}'
        f'layer {{ name: "c" type: "Concat" {" ".join(f"bottom: {chr(34)}c{i}{chr(34)}" for i in order)} top: "c" }}',
        x=X,
    )
    close(output(net), X.reshape(2, 2, 2, 3, 3).swapaxes(1, 2).reshape(X.shape))


def test_depthwise_convolution(tmp_path) -> None:
    assert advice("DepthwiseConvolution").startswith("write Convolution, with group as many as its channels")
    kernels = np.random.default_rng(2).normal(size=(4, 1, 3, 3)).astype(np.float32)
    fields = "num_output: 4 group: 4 kernel_size: 3 bias_term: false"
    net = built(f'layer {{ name: "d" type: "Convolution" bottom: "x" top: "d" convolution_param {{ {fields} }} }}', x=X)
    net.copy_from(written(tmp_path / "w.caffemodel", [("d", "DepthwiseConvolution", [kernels])]))
    close(output(net), (X * kernels[:, 0]).sum((2, 3), keepdims=True))


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


def as_stored(values: np.ndarray) -> np.ndarray:
    return values.reshape(1, 4, 1, 1)


def test_bn_of_pspnet(tmp_path) -> None:
    assert advice("BN", "frozen") == forks.PSPNETS_BN
    blobs = list(map(as_stored, (GAIN, SHIFT, MEAN, VARIANCE)))
    layer: LayerParameter = read(written(tmp_path / "fork.caffemodel", [("bn", "BN", blobs)])).layer[0]
    gain, shift, mean, variance = (np.array(blob.data, np.float32) for blob in layer.blobs)
    net = built(NORMS, x=X)
    net.copy_from(written(tmp_path / "w.caffemodel", [("bn", "", [mean, variance, ONE]), ("scale", "", [gain, shift])]))
    close(output(net), normed())


def test_bn_of_segnet(tmp_path) -> None:
    assert advice("BN", "bn_mode") == advice("BN", "shift_filler") == forks.SEGNETS_BN
    fork = written(tmp_path / "fork.caffemodel", [("bn", "BN", [as_stored(GAIN), as_stored(SHIFT)])])
    net = built('layer { name: "bn" type: "Scale" bottom: "x" top: "y" scale_param { bias_term: true } }', x=X)
    with pytest.raises(scaffe.ScaffeError, match=r"shape \(4,\) in the net, \(1, 4, 1, 1\) in the file"):
        net.copy_from(fork)
    gain, shift = (np.array(blob.data, np.float32) for blob in read(fork).layer[0].blobs)
    net.copy_from(written(tmp_path / "w.caffemodel", [("bn", "Scale", [gain, shift])]))
    close(output(net), X * GAIN[:, None, None] + SHIFT[:, None, None])


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
    types = {"BatchNorm", "Clip", "Concat", "Convolution", "Data", "Deconvolution", "Dropout", "Eltwise", "ImageData",
             "EuclideanLoss", "LSTM", "Pooling", "Power", "Reduction", "ReLU", "Reshape", "Scale", "Slice"}  # fmt: skip
    assert types <= {*scaffe.layers.known_types()}
    words = {*re.findall(r"\b[A-Z][A-Za-z]+[a-z]\b", row.use)} - {"Python"}
    assert words <= types
    if row.fields.startswith("SolverParameter"):
        fields = SolverParameter.DESCRIPTOR.fields_by_name
        assert all(name in fields for name in re.findall(r"\b[a-z]+_[a-z_]+\b", row.use))
