"""scaffe convert-mnist."""

from __future__ import annotations

import argparse

import readers
from scaffe.commands.databases import add_backend_flag
from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command
from scaffe.commands.running import alone
from scaffe.monitor.log import log

RANK = 21


def add(top: Parser) -> None:
    """Add `convert-mnist`."""
    text = "Make an LMDB of MNIST's files, or of others in the idx format; they may be gzipped."
    command = add_command(top, "convert-mnist", lambda a: alone(lambda: _convert(a)), text, ["convert_mnist_data"])
    command.add_argument("images", metavar="IMAGES", help="such as train-images-idx3-ubyte")
    command.add_argument("labels", metavar="LABELS", help="such as train-labels-idx1-ubyte.gz")
    command.add_argument("db", metavar="DB")
    add_backend_flag(command)


def _convert(a: argparse.Namespace) -> None:
    log.info("Processed %d files.", readers.convert_mnist(a.images, a.labels, a.db))
