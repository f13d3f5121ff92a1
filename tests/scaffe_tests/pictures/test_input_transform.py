"""Weights say how their training prepared images: classify takes that, others are warned of a difference."""

from __future__ import annotations

import nets
import numpy as np
import pytest
from google.protobuf import text_format

import scaffe
from scaffe.cli import main
from scaffe.pictures.io import array_to_blobproto
from scaffe.proto.files import read_weights
from scaffe.training.solver import Solver

SCALE = 0.0078125
MEANS = "mean_value: 10 mean_value: 20 mean_value: 30"
OTHER = "trained with scale 0.0078125, here"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with a database, a deploy net, and images.npy, of pixels from 0 to 1."""
    monkeypatch.chdir(tmp_path)
    nets.write_images(tmp_path / "db", 20, (3, 4, 4))
    deploy = """name: "SoftmaxRegression"
        layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 4 dim: 4 } } }
        layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 10 } }
        layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }"""
    (tmp_path / "deploy.prototxt").write_text(deploy)
    np.save("images.npy", np.random.default_rng(2).random((3, 4, 4, 3), np.float32))
    return tmp_path


def net_text(transform=f"scale: {SCALE}"):
    return nets.softmax_regression("db").replace("scale: 0.00390625", transform)


def trained(transform=f"scale: {SCALE}", weights="", **fields):
    """Return the path of the weights of a training, with a test net."""
    param = nets.solver_with(net_text(transform), snapshot_prefix="snap", test_iter=[1], test_interval=9, **fields)
    solver = Solver(param)
    if weights:
        solver.net.copy_from(weights)
    solver.step(2)
    state = solver.snapshot()
    solver.close()
    return state.replace("solverstate", "caffemodel")


def scores(weights, *flags):
    line = ["classify", "images.npy", "out.npy", "--model", "deploy.prototxt", "--weights", weights, *flags]
    assert main(line) == 0
    return np.load("out.npy")


def said(capsys, *parts):
    """Return the lines of the log that have one of the parts, since the last call."""
    return [line for line in capsys.readouterr().err.splitlines() if any(part in line for part in parts)]


@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
def test_weights_have_the_transforms_of_the_train_and_test_net(folder, form):
    path = trained(f"scale: {SCALE} mean_value: 10 mirror: true", snapshot_format=form)
    found = read_weights(path).input_transform
    assert [(one.net, one.layer) for one in found] == [("train", "images"), ("test 0", "images")]
    for one in found:
        assert one.transform_param.scale == SCALE
        assert list(one.transform_param.mean_value) == [10]
        assert one.transform_param.mirror and not one.mean


@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
@pytest.mark.parametrize(
    ("transform", "flags"),
    [
        (f"scale: {SCALE}", ["--input-scale", str(SCALE)]),
        (
            f"scale: {SCALE} mean_value: 10 mean_value: 20 mean_value: 30",
            ["--input-scale", str(SCALE), "--mean=10,20,30"],
        ),
        ("mean_value: 7", ["--mean", "7"]),
    ],
)
def test_classify_without_flags_prepares_images_as_the_training(folder, capsys, form, transform, flags):
    path = trained(transform, snapshot_format=form)
    expected = scores(path, *flags)
    assert not said(capsys, "As ", "trained with")
    np.testing.assert_array_equal(scores(path), expected)
    assert len(said(capsys, f"As {path} was trained, images are prepared with ")) == 1


def test_a_flag_that_says_otherwise_counts_and_is_warned_of(folder, capsys):
    path = trained()
    expected = scores(without_transforms(path), "--input-scale", "1")
    assert not said(capsys, "trained")
    np.testing.assert_array_equal(scores(path, "--input-scale", "1"), expected)
    assert len(said(capsys, f"{path}: {OTHER} 1: the net gets other values than in training")) == 1
    raw = scores(path, "--raw-scale", str(255 * SCALE))  # the same by another flag
    assert not said(capsys, "trained")
    np.testing.assert_allclose(raw, scores(path), rtol=1e-5)


def test_a_mean_file_that_is_gone_is_its_channels_means(folder, capsys):
    mean = np.arange(48, dtype=np.float32).reshape(1, 3, 4, 4)
    (folder / "mean.binaryproto").write_bytes(array_to_blobproto(mean).SerializeToString())
    path = trained(f"scale: {SCALE} mean_file: 'mean.binaryproto'")
    (folder / "mean.binaryproto").unlink()
    assert [list(one.mean) for one in read_weights(path).input_transform] == [[7.5, 23.5, 39.5]] * 2
    expected = scores(path, "--input-scale", str(SCALE), "--mean", "7.5,23.5,39.5")
    capsys.readouterr()
    np.testing.assert_array_equal(scores(path), expected)
    assert said(capsys, "mean 7.5,23.5,39.5, the channels' means of mean.binaryproto")


def without_transforms(path):
    """Write the weights of a file as Caffe would, which knows nothing of transforms, and return the path."""
    stored = read_weights(path)
    for field in ("sealed", "checksum", "input_transform"):
        stored.ClearField(field)
    with open("caffes.caffemodel", "wb") as file:
        file.write(stored.SerializeToString())
    return "caffes.caffemodel"


def test_weights_of_caffe_change_nothing(folder, capsys):
    path = trained()
    caffes = without_transforms(path)
    np.testing.assert_array_equal(scores(caffes), scores(path, "--input-scale", "1"))
    capsys.readouterr()
    scores(caffes)
    assert not said(capsys, "trained")


def test_a_classifier_computes_what_pycaffe_computes_and_warns_once(folder, caplog):
    path = trained()
    images, plain = np.load("images.npy"), without_transforms(path)
    expected = scaffe.Classifier("deploy.prototxt", plain).predict(images, oversample=False)
    assert OTHER not in caplog.text
    net = scaffe.Classifier("deploy.prototxt", path)
    for _ in range(2):
        np.testing.assert_array_equal(net.predict(images, oversample=False), expected)
    assert caplog.text.count(f"{OTHER} 0.00392157") == 1
    caplog.clear()
    scaffe.Classifier("deploy.prototxt", path, input_scale=SCALE, raw_scale=255).predict(images, oversample=False)
    assert "trained" not in caplog.text


@pytest.mark.parametrize(("transform", "warned"), [("scale: 0.5", True), (f"scale: {SCALE} mirror: true", False)])
def test_a_test_and_extracted_features_warn_of_another_transform(folder, capsys, transform, warned):
    path = trained()
    (folder / "test.prototxt").write_text(net_text(transform))
    capsys.readouterr()
    assert main(["test", "--model", "test.prototxt", "--weights", path, "--iterations", "1"]) == 0
    assert len(said(capsys, f"layer 'images': {OTHER} 0.5")) == warned
    assert main(["extract-features", path, "test.prototxt", "ip", "ip.npy", "1", "npy"]) == 0
    assert len(said(capsys, f"layer 'images': {OTHER} 0.5")) == warned


def test_a_training_from_weights_writes_its_own_transforms_without_a_warning(folder, caplog):
    first = trained()
    (folder / "first.caffemodel").write_bytes((folder / first).read_bytes())
    second = trained("scale: 0.5", weights="first.caffemodel")
    assert [one.transform_param.scale for one in read_weights(second).input_transform] == [0.5, 0.5]
    assert "trained with" not in caplog.text


def test_a_deploy_net_keeps_the_transforms_of_its_weights(folder):
    path = trained()
    scaffe.Net("deploy.prototxt", path, scaffe.TEST).save("again.caffemodel")
    assert read_weights("again.caffemodel").input_transform == read_weights(path).input_transform


def changed(path, text, number):
    """Write the weights of a file with another transform in the place of that number, and return the path."""
    stored = read_weights(path)
    del stored.input_transform[number:]
    text_format.Parse(text, stored.input_transform.add())
    for field in ("sealed", "checksum"):
        stored.ClearField(field)
    with open("changed.caffemodel", "wb") as file:
        file.write(stored.SerializeToString())
    return "changed.caffemodel"


def test_the_test_nets_transform_counts_and_of_several_that_differ_none(folder, capsys):
    path = trained()
    expected = scores(path, "--input-scale", "3"), scores(path, "--input-scale", "1")
    test = 'net: "test 0" transform_param { scale: 3 }'
    np.testing.assert_array_equal(scores(changed(path, test, 1)), expected[0])
    two = changed(path, 'net: "test 1" transform_param { scale: 3 }', 2)
    capsys.readouterr()
    np.testing.assert_array_equal(scores(two), expected[1])
    assert not said(capsys, "trained")
