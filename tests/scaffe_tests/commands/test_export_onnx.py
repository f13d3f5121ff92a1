"""scaffe export-onnx: a net and its weights as a model."""

import sys

import numpy as np
import onnx
import pytest
from onnx_runs import run

import scaffe
from scaffe import models
from scaffe.cli import main
from scaffe.proto import InputTransform, TransformationParameter


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(str(models.get("lenet").deploy(2)))
    net = scaffe.Net("net.prototxt", scaffe.TEST)
    net.trained = [InputTransform(net="train", transform_param=TransformationParameter(scale=1 / 256))]
    net.save("w.caffemodel")
    return tmp_path


def scores(pixels, scale=1.0, shift=0.0):
    net = scaffe.Net("net.prototxt", scaffe.TEST, weights="w.caffemodel")
    net.blobs["data"].reshape(*pixels.shape)
    return net.forward(data=(pixels - shift) * scale)["prob"]


PIXELS = np.random.default_rng(0).integers(0, 256, (5, 1, 28, 28)).astype(np.float32)


@pytest.mark.parametrize(
    ("flags", "scale", "shift"),
    [([], 1, 0), (["--transform"], 1 / 256, 0), (["--transform", "--mean", "9", "--input-scale", "0.01"], 0.01, 9)],
)
def test_the_model_has_the_nets_weights_and_prepares_pixels_where_told(flags, scale, shift):
    assert main(["export-onnx", "net.prototxt", "w.caffemodel", "out.onnx", *flags]) == 0
    model = onnx.load("out.onnx")
    assert model.opset_import[0].version >= 17
    found = run(model, {"data": PIXELS})["prob"]
    assert np.allclose(found, scores(PIXELS, scale, shift), atol=1e-5)


def test_without_weights_the_model_has_the_fillers_values(capfd):
    assert main(["export-onnx", "net.prototxt", "out.onnx"]) == 0
    assert "No weights are given" in capfd.readouterr().err
    assert run(onnx.load("out.onnx"), {"data": PIXELS})["prob"].shape == (5, 10)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("net.prototxt w.caffemodel net.prototxt", "OUT.onnx 'net.prototxt': is an input of this command"),
        ("net.prototxt w.caffemodel w.caffemodel", "OUT.onnx 'w.caffemodel': is an input of this command"),
        ("no.prototxt out.onnx", "no.prototxt: no such file"),
        ("net.prototxt out.onnx --mean 3", "give --transform too"),
        ("net.prototxt out.onnx --transform", "the weights don't say how images are prepared"),
        ("net.prototxt w.caffemodel out.onnx --transform --mean 1,2", "the mean has shape (2,)"),
        ("net.prototxt w.caffemodel no/out.onnx", "no/out.onnx"),
    ],
)
def test_an_error_is_one_line(capfd, arguments, said):
    assert main(["export-onnx", *arguments.split()]) == 2
    *_, line = capfd.readouterr().err.splitlines()
    assert line.startswith("scaffe: ") and said in line


def test_without_onnx_the_extra_is_named(capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main(["export-onnx", "net.prototxt", "out.onnx"]) == 2
    assert "pip install 'scaffe[onnx]'" in capfd.readouterr().err
