"""scaffe import-onnx."""

from __future__ import annotations

import argparse
import os

from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command
from scaffe.commands.running import alone
from scaffe.errors import ScaffeError
from scaffe.files.outputs import check_replaced
from scaffe.monitor.log import log
from scaffe.onnx.imported import DEPLOY, WEIGHTS, Imported
from scaffe.proto import kinds

RANK = 37


def add(top: Parser) -> None:
    """Add `import-onnx`."""
    text = "Read an ONNX model as a deploy net and its weights."
    command = add_command(top, "import-onnx", lambda a: alone(lambda: _import(a)), text)
    command.add_argument("model", metavar="MODEL.onnx", help="the model, exported for inference")
    command.add_argument("out_dir", metavar="DIR", help=f"folder of {DEPLOY} and {WEIGHTS}")
    command.flag("batch", type=int, default=1, metavar="N", help="samples of a batch that the model leaves open [1]")
    text = "sizes of an input that the model leaves open; may be given several times"
    command.flag("shape", action="append", type=_shape, default=[], metavar="NAME=N,C,H,W", help=text)


def _shape(text: str) -> tuple[str, list[int]]:
    name, _, sizes = text.rpartition("=")
    numbers = sizes.split(",")
    if not name or not all(one.isdecimal() and int(one) for one in numbers):
        raise argparse.ArgumentTypeError(f"expected NAME=N,C,H,W such as input=1,3,224,224, got '{text}'")
    return name, [int(one) for one in numbers]


def _import(a: argparse.Namespace) -> None:
    if a.batch < 1:
        raise ScaffeError(f"--batch must be 1 or more, got {a.batch}")
    for name, own in ((DEPLOY, kinds.NET), (WEIGHTS, kinds.WEIGHTS)):
        check_replaced("DIR's", os.path.join(a.out_dir, name), [a.model], [own])
    made = Imported(a.model, a.batch, dict(a.shape), where=a.model)
    made.write(a.out_dir)
    count = sum(values.size for weights in made.layers.weights.values() for values in weights)
    log.info("%d layers and %d parameters are in %s", len(made.param.layer), count, a.out_dir)
