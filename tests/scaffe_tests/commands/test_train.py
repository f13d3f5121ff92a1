"""scaffe train on one rank: the same training as through Python, from the weights or the snapshot that flags name."""

from __future__ import annotations

from pathlib import Path

import nets
import numpy as np
import pytest
from bad_input import edit, trainable

import scaffe
from scaffe.cli import main
from scaffe.proto.files import read_solver, read_weights

TRAIN = ("train", "--solver", "solver.prototxt")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return trainable(tmp_path, monkeypatch)


def weights(path):
    return [np.array(blob.data, np.float32) for layer in read_weights(path).layer for blob in layer.blobs]


def in_python(*, weights=None, **fields):
    """Return the parameters after training through Python."""
    param = read_solver("solver.prototxt")
    param.MergeFrom(type(param)(snapshot_prefix="python", snapshot_after_train=False, **fields))
    param.ClearField("snapshot")
    solver = scaffe.get_solver(param)
    if weights:
        solver.net.copy_from(weights)
    solver.solve()
    found = [parameter.blob.data.reshape(-1).copy() for parameter in solver.net.parameters]
    solver.close()
    return found


def assert_same(ours, theirs):
    assert len(ours) == len(theirs) == 2
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_the_command_trains_as_python_does(folder, capsys):
    assert main(TRAIN) == 0
    assert_same(weights("snap_iter_4.caffemodel"), in_python())
    assert "Optimization Done." in capsys.readouterr().err


def test_training_starts_from_the_weights_that_are_named(folder):
    assert main(TRAIN) == 0
    (folder / "snap_iter_4.caffemodel").rename("start.caffemodel")
    assert main([*TRAIN, "--weights", "start.caffemodel"]) == 0
    assert_same(weights("snap_iter_4.caffemodel"), in_python(weights="start.caffemodel"))


def test_a_snapshot_goes_on_to_where_one_run_ends(folder):
    assert main(TRAIN) == 0
    at_once = weights("snap_iter_4.caffemodel")
    for suffix in ("caffemodel", "solverstate"):
        (folder / f"snap_iter_4.{suffix}").unlink()
    assert main([*TRAIN, "--snapshot", "snap_iter_2.solverstate"]) == 0
    assert_same(weights("snap_iter_4.caffemodel"), at_once)


def test_levels_and_stages_choose_layers(folder, capsys):
    more = 'layer { name: "deep" type: "Silence" bottom: "ip" include { min_level: 1 stage: "more" } }'
    (folder / "net.prototxt").write_text(nets.softmax_regression("db") + more)
    for flags, there in (((), False), (("--level", "1"), False), (("--level", "1", "--stage", "more"), True)):
        assert main([*TRAIN, *flags]) == 0
        assert ("deep" in capsys.readouterr().err) == there


def test_a_snapshot_and_weights_are_not_taken_together(folder, capsys):
    assert main([*TRAIN, "--weights", "a", "--snapshot", "b"]) == 2
    assert "--snapshot to go on with a run, or --weights to fine-tune, not both" in capsys.readouterr().err


DOUBTS = [
    ("base_lr: 0.01", "", "base_lr is missing: the learning rate is 0, and nothing is learned"),
    ("max_iter: 4", "", "max_iter is missing: no iteration is trained"),
    ("base_lr: 0.01", "base_lr: -0.01", "base_lr is below 0, -0.01: the loss grows"),
    ("momentum: 0.9", "weight_decay: -0.1", "weight_decay is below 0, -0.1: the loss grows"),
    ("momentum: 0.9", "test_interval: 2", "test_interval without test_iter: nothing is tested"),
    ('"fixed"', '"step" stepsize: 2', "lr_policy 'step' takes gamma, which is missing: it is 0"),
    ('"fixed"', '"poly"', "lr_policy 'poly' takes power, which is missing: it is 0"),
    (
        '"fixed"',
        '"multistep" gamma: 0.1',
        "lr_policy 'multistep' takes stepvalue, which is missing: the rate stays",
    ),
    ("net.prototxt", "deploy.prototxt", "net 'SoftmaxRegression' has no loss, as a deploy net: nothing is learned"),
]


@pytest.mark.parametrize(("old", "new", "said"), [("momentum: 0.9", "test_iter: 1 test_interval: 2", ""), *DOUBTS])
def test_what_caffe_accepts_and_nobody_wants_is_one_warning(folder, capsys, old, new, said):
    text = Path("net.prototxt").read_text()
    Path("deploy.prototxt").write_text(text[: text.rindex("layer {")])
    edit("solver.prototxt", old, new)
    assert main(TRAIN) == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("W")]
    assert [line.partition("] ")[2] for line in warnings] == ([said] if said else [])


def test_a_byte_order_mark_hides_no_field(folder):
    text = "\ufeff" + Path("solver.prototxt").read_text()
    Path("solver.prototxt").write_text(text, encoding="utf-8")
    assert main(TRAIN) == 0


def test_weights_of_the_solver_file_are_a_list_as_in_caffe(folder):
    main(["train", "--solver", "solver.prototxt"])
    with open("solver.prototxt", "a") as file:
        file.write('\nweights: "snap_iter_4.caffemodel, snap_iter_4.caffemodel"\n')
    assert main(["train", "--solver", "solver.prototxt"]) == 0


def test_the_arguments_of_python_train_py(folder, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr("scaffe.devices.gpu.choose", lambda device, ids: asked.append(ids))
    assert main([*TRAIN, "--gpus", "0", "1", "--timing"]) == 0
    assert asked == ["0,1"]
    assert_same(weights("snap_iter_4.caffemodel"), in_python())
    told = capsys.readouterr().err
    assert "--gpus names 2 GPUs for 1 rank(s), each of which has one: start 2 ranks with mpirun" in told
    assert "--timing: --timeline FILE writes the times" in told


def test_gpus_are_numbers(folder, capsys):
    with pytest.raises(SystemExit):
        main([*TRAIN, "--gpus", "first"])
    assert "--gpus: expected a number of a GPU, got 'first'" in capsys.readouterr().err
