"""scaffe export-onnx."""

from __future__ import annotations

import argparse

import numpy as np

from scaffe.commands.gflags import Parser
from scaffe.commands.images import read_mean
from scaffe.commands.parser import add_command
from scaffe.commands.running import alone, stages
from scaffe.compute import Compute
from scaffe.context import TEST
from scaffe.engine import REFERENCE
from scaffe.errors import ScaffeError
from scaffe.files.outputs import check_output, net_files
from scaffe.monitor.log import log
from scaffe.net.net import Net
from scaffe.onnx.library import library
from scaffe.onnx.model import Preparation, export
from scaffe.pictures.input_transform import chosen, mean_of, text_of

RANK = 36


def add(top: Parser) -> None:
    """Add `export-onnx`."""
    text = "Write a deploy net and its weights as an ONNX model."
    command = add_command(top, "export-onnx", lambda a: alone(lambda: _export(a)), text)
    command.add_argument("net", metavar="NET", help="deploy net prototxt")
    told = ".caffemodel; without it the model has the values of the net's fillers"
    command.add_argument("weights", nargs="?", metavar="WEIGHTS", help=told)
    command.add_argument("out", metavar="OUT.onnx", help="the model")
    text = "take pixels from 0 to 255, and prepare them as those that the weights were trained with"
    command.flag("transform", action="store_true", help=text)
    command.flag("mean", metavar="FILE|B,G,R", help="with --transform: subtract this mean of each channel")
    command.flag("input-scale", type=float, metavar="X", help="with --transform: then multiply by this factor")
    command.flag("level", type=int, metavar="N", help="level of the net's state")
    command.flag("stage", default="", metavar="A,B", help="stages of the net's state")


def _export(a: argparse.Namespace) -> None:
    library()
    if not a.transform and (a.mean or a.input_scale is not None):
        raise ScaffeError("--mean and --input-scale say how the model prepares pixels: give --transform too")
    check_output("OUT.onnx", a.out, [a.weights, a.mean, *net_files([a.net])])
    compute = Compute(engine=REFERENCE)
    net = Net(a.net, TEST, weights=a.weights, compute=compute, level=a.level, stages=stages(a))
    if not a.weights and net.params:
        log.warning("No weights are given: %s has the values of the net's fillers", a.out)
    preparation = _preparation(net, a) if a.transform else None
    export(net, a.out, preparation)
    log.info("%d layers are in %s; inputs: %s; outputs: %s",
             len(net.layers), a.out, ", ".join(net.inputs), ", ".join(net.outputs))  # fmt: skip


def _preparation(net: Net, a: argparse.Namespace) -> Preparation:
    """Return how pixels are prepared: as the flags say, else as the file of the weights does."""
    trained = chosen(net.trained)
    given = read_mean(a.mean)
    if trained is None and given is None and a.input_scale is None:
        raise ScaffeError("--transform: the weights don't say how images are prepared; give --mean and --input-scale")
    mean = mean_of(trained) if trained else np.zeros(1, np.float32)
    if given is not None:
        mean = given if given.ndim == 1 else given.mean((1, 2), dtype=np.float64).astype(np.float32)
    scale = trained.transform_param.scale if trained else 1.0
    preparation = Preparation(mean, scale if a.input_scale is None else a.input_scale)
    log.info("The model takes pixels from 0 to 255; mean %s; scale %g", text_of(preparation.mean), preparation.scale)
    return preparation
