"""scaffe import-onnx: a model as files of Caffe that are tested and trained."""

from __future__ import annotations

import re
import sys

import numpy as np
import onnx
import pytest
from nets import write_images
from onnx import TensorProto, helper
from onnx_runs import built, inputs, run

import scaffe
from scaffe import models
from scaffe.cli import main
from scaffe.onnx.model import export

TRAIN = """
layer { name: "data" type: "Data" top: "data" top: "label" transform_param { scale: 0.00390625 }
  data_param { source: "db" batch_size: 8 } }
"""
LOSS = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }\n'
SOLVER = 'net: "train.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 3 display: 1 snapshot_prefix: "snap"\n'


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    export(built(models.get("lenet").deploy(2)), "lenet.onnx")
    return tmp_path


def test_the_files_have_the_models_numbers(folder, capfd):
    assert main(["import-onnx", "lenet.onnx", "net", "--batch", "4"]) == 0
    assert re.search(r"layers and 431080 parameters are in net", capfd.readouterr().err)
    net = scaffe.Net("net/deploy.prototxt", scaffe.TEST, weights="net/weights.caffemodel")
    given = inputs(net)
    assert given["data"].shape == (4, 1, 28, 28)
    assert np.allclose(net.forward(**given)["prob"], run(onnx.load("lenet.onnx"), given)["prob"], atol=1e-5)
    assert main(["import-onnx", "lenet.onnx", "net"]) == 0, "an earlier result is replaced"


@pytest.mark.parametrize("name", ["deploy.prototxt", "weights.caffemodel"])
def test_a_file_of_another_kind_is_kept(folder, name):
    (folder / "net").mkdir()
    np.save(folder / "net/array.npy", np.zeros(3))
    before = (folder / "net/array.npy").rename(folder / "net" / name).read_bytes()
    assert main(["import-onnx", "lenet.onnx", "net"]) == 2
    assert [path.name for path in (folder / "net").iterdir()] == [name]
    assert (folder / "net" / name).read_bytes() == before


@pytest.mark.mpi_skip
def test_two_ranks_train_it(folder, mpirun):
    assert main(["import-onnx", "lenet.onnx", "net"]) == 0
    write_images(folder / "db", 20)
    text = (folder / "net/deploy.prototxt").read_text()
    body = text[text.index("\nlayer", text.index("layer {") + 1) :]
    (folder / "train.prototxt").write_text(TRAIN + body + LOSS)
    (folder / "solver.prototxt").write_text(SOLVER)
    command = [sys.executable, "-m", "scaffe", "train", "--solver", "solver.prototxt"]
    done = mpirun(2, *command, "--weights", "net/weights.caffemodel")
    assert done.returncode == 0, done.stderr
    trained = scaffe.Net("net/deploy.prototxt", scaffe.TEST, weights="snap_iter_3.caffemodel")
    before = scaffe.Net("net/deploy.prototxt", scaffe.TEST, weights="net/weights.caffemodel")
    moved = np.abs(trained.params["conv1/Conv"][0].data - before.params["conv1/Conv"][0].data).max()
    assert 0 < moved < 0.1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("none.onnx net", "none.onnx: no such file"),
        ("lenet.onnx net --batch 0", "--batch must be 1 or more"),
        ("bad.onnx net", "bad.onnx: no valid ONNX model"),
        ("lenet.onnx lenet.onnx", "lenet.onnx"),
    ],
)
def test_an_error_is_one_line(folder, capfd, arguments, said):
    (folder / "bad.onnx").write_bytes(b"\x00bad")
    assert main(["import-onnx", *arguments.split()]) == 2
    *_, line = capfd.readouterr().err.splitlines()
    assert line.startswith("scaffe: ") and said in line


def test_open_sizes_are_given_behind_the_names_of_files(folder):
    names, open_sizes = ("a", "b"), ("N", "C")
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, open_sizes) for name in (*names, "y")]
    graph = helper.make_graph([helper.make_node("Add", names, ["y"])], "sum", infos[:2], infos[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "sum.onnx")
    assert main(["import-onnx", "sum.onnx", "net", "--shape", "a=2,3", "--shape", "b=2,3"]) == 0
    net = scaffe.Net("net/deploy.prototxt", scaffe.TEST)
    assert [net.blobs[name].shape for name in "aby"] == [(2, 3)] * 3


def test_a_wrong_shape_is_a_wrong_flag(capfd):
    with pytest.raises(SystemExit):
        main(["import-onnx", "lenet.onnx", "net", "--shape", "data=1,x"])
    assert "expected NAME=N,C,H,W such as input=1,3,224,224, got 'data=1,x'" in capfd.readouterr().err
