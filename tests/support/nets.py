"""Small nets, solvers and databases that tests train on."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from google.protobuf import text_format

from readers import encode, write_lmdb
from scaffe.files.lock_owner import this_process
from scaffe.files.process_state import start_of
from scaffe.proto import SolverParameter

CLASSES = 10

LENET = """
name: "LeNet"
layer {{
  name: "digits" type: "Data" top: "data" top: "label" include {{ phase: TRAIN }}
  transform_param {{ scale: 0.00390625 {transform} }}
  data_param {{ source: "{source}" batch_size: {batch} backend: LMDB }}
}}
layer {{
  name: "digits" type: "Data" top: "data" top: "label" include {{ phase: TEST }}
  transform_param {{ scale: 0.00390625 {transform} }}
  data_param {{ source: "{source}" batch_size: {batch} backend: LMDB }}
}}
layer {{
  name: "conv1" type: "Convolution" bottom: "data" top: "conv1" param {{ lr_mult: 1 }} param {{ lr_mult: 2 }}
  convolution_param {{ num_output: 20 kernel_size: 5 weight_filler {{ type: "xavier" }} }}
}}
layer {{
  name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
  pooling_param {{ pool: {pool} kernel_size: 2 stride: 2 }}
}}
layer {{
  name: "conv2" type: "Convolution" bottom: "pool1" top: "conv2" param {{ lr_mult: 1 }} param {{ lr_mult: 2 }}
  convolution_param {{ num_output: 50 kernel_size: 5 weight_filler {{ type: "xavier" }} }}
}}
layer {{
  name: "pool2" type: "Pooling" bottom: "conv2" top: "pool2"
  pooling_param {{ pool: {pool} kernel_size: 2 stride: 2 }}
}}
layer {{
  name: "ip1" type: "InnerProduct" bottom: "pool2" top: "ip1" param {{ lr_mult: 1 }} param {{ lr_mult: 2 }}
  inner_product_param {{ num_output: 500 weight_filler {{ type: "xavier" }} }}
}}
{relu}
{dropout}
layer {{
  name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" param {{ lr_mult: 1 }} param {{ lr_mult: 2 }}
  inner_product_param {{ num_output: 10 weight_filler {{ type: "xavier" }} }}
}}
layer {{ name: "accuracy" type: "Accuracy" bottom: "ip2" bottom: "label" top: "accuracy" }}
layer {{
  name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss"
  loss_param {{ {loss} }}
}}
"""
RELU = 'layer { name: "relu1" type: "ReLU" bottom: "ip1" top: "ip1" }'
DROPOUT = 'layer { name: "drop1" type: "Dropout" bottom: "ip1" top: "ip1" dropout_param { dropout_ratio: 0.4 } }'


def lenet(
    source: str | Path,
    batch: int = 16,
    *,
    dropout: bool = False,
    pool: str = "MAX",
    smooth: bool = False,
    **inserted: str,
) -> str:
    """Return LeNet's train_val prototxt over the records of `source`, with fields of `loss` and `transform` given.

    The `smooth` one has no ReLU and no max pooling, where a rounding can turn into another gradient.
    """
    fields = {"loss": "", "transform": "", **inserted}
    kinds = {"pool": "AVE", "relu": ""} if smooth else {"pool": pool, "relu": RELU}
    return LENET.format(source=source, batch=batch, dropout=DROPOUT if dropout else "", **kinds, **fields)


SOFTMAX_REGRESSION = """
name: "SoftmaxRegression"
layer {{
  name: "images" type: "Data" top: "data" top: "label"
  transform_param {{ scale: 0.00390625 }}
  data_param {{ source: "{source}" batch_size: {batch} backend: LMDB }}
}}
layer {{
  name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param {{ num_output: {outputs} weight_filler {{ type: "xavier" }} }}
}}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""


def softmax_regression(source: str | Path, batch: int = 8, outputs: int = CLASSES) -> str:
    """Return the prototxt of a net of one layer, for tests that are not about layers: an iteration takes no time."""
    return SOFTMAX_REGRESSION.format(source=source, batch=batch, outputs=outputs)


TOWER = """
name: "Tower"
layer {{
  name: "images" type: "Data" top: "data" top: "label"
  transform_param {{ scale: 0.00390625 }}
  data_param {{ source: "{source}" batch_size: {batch} backend: LMDB }}
}}
layer {{
  name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param {{ pool: AVE kernel_size: 4 stride: 4 }}
}}
layer {{
  name: "ip1" type: "InnerProduct" bottom: "pool" top: "ip1"
  inner_product_param {{ num_output: 24 weight_filler {{ type: "xavier" }} }}
}}
layer {{ name: "tanh1" type: "TanH" bottom: "ip1" top: "ip1" }}
layer {{ name: "drop1" type: "Dropout" bottom: "ip1" top: "ip1" dropout_param {{ dropout_ratio: 0.2 }} }}
layer {{
  name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" param {{ name: "shared" }}
  inner_product_param {{ num_output: 24 weight_filler {{ type: "xavier" }} }}
}}
layer {{ name: "tanh2" type: "TanH" bottom: "ip2" top: "tanh2" }}
layer {{
  name: "ip3" type: "InnerProduct" bottom: "tanh2" top: "ip3"
  inner_product_param {{ num_output: 24 weight_filler {{ type: "xavier" }} }}
}}
layer {{
  name: "ip4" type: "InnerProduct" bottom: "ip3" top: "ip4" param {{ name: "shared" }}
  inner_product_param {{ num_output: 24 weight_filler {{ type: "xavier" }} }}
}}
layer {{ name: "sum" type: "Eltwise" bottom: "ip2" bottom: "ip4" top: "sum" }}
layer {{
  name: "ip5" type: "InnerProduct" bottom: "sum" top: "ip5"
  inner_product_param {{ num_output: 10 weight_filler {{ type: "xavier" }} }}
}}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip5" bottom: "label" top: "loss" }}
"""


def tower(source: str | Path, batch: int = 12) -> str:
    """Return the prototxt of a net of many small layers, two of which share their weights: an iteration takes 1 ms."""
    return TOWER.format(source=source, batch=batch)


def solver_with(net: str, **fields) -> SolverParameter:
    """Return an SGD solver with the net's text inside; `fields` replace or add to what it sets."""
    param = SolverParameter(
        base_lr=0.01, lr_policy="fixed", momentum=0.9, weight_decay=0.0005, random_seed=7, max_iter=20
    )
    text_format.Parse(net, param.net_param)
    param.snapshot_after_train = False
    param.MergeFrom(SolverParameter(**fields))
    return param


def write_solver(folder: Path, net: str, **fields) -> Path:
    """Write such a solver to `folder`/solver.prototxt, its snapshots beside it, and return the path."""
    path = folder / "solver.prototxt"
    fields.setdefault("snapshot_prefix", str(folder / "snap"))
    path.write_text(text_format.MessageToString(solver_with(net, **fields)))
    return path


def write_images(db: Path, count: int = 50, shape: tuple[int, int, int] = (1, 28, 28), classes: int = CLASSES) -> Path:
    """Write an LMDB of learnable images: a pattern for each class, with noise. Return its path."""
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 200, (classes, *shape))
    labels = rng.integers(0, classes, count)
    images = (patterns[labels] + rng.integers(0, 56, (count, *shape))).astype(np.uint8)
    write_lmdb(db, ((b"%08d" % i, encode(image, int(labels[i]))) for i, image in enumerate(images)))
    return db


def shared_folder(comm, factory, name: str, **images) -> Path:
    """Return one temporary folder for all ranks of `comm`, with an LMDB `db` of images in it. Collective."""
    path = comm.bcast(factory.mktemp(name))
    if comm.rank == 0:
        write_images(path / "db", **images)
    comm.Barrier()
    return path


def lock_of_a_running_job(prefix: str | Path) -> None:
    """Let a process that runs as long as the tests, their parent, have the lock of a snapshot prefix."""
    owner = replace(this_process(), pid=os.getppid(), started=start_of(os.getppid()))
    Path(f"{prefix}.lock").write_text(json.dumps(asdict(owner)))


SAME = """
import caffe

class Same(caffe.Layer):
    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = top[0].diff
"""  # a Python layer that changes nothing, for others to be made of
