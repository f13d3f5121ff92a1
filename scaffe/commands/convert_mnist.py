"""scaffe convert-mnist, with or without pairs for a siamese net."""

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
    text = "Make a database of MNIST's files, or of others in the idx format; they may be gzipped."
    caffes = {"convert_mnist_data": [], "convert_mnist_siamese_data": ["--siamese", "--backend=leveldb"]}
    command = add_command(top, "convert-mnist", lambda a: alone(lambda: _convert(a)), text, caffes)
    command.add_argument("images", metavar="IMAGES", help="such as train-images-idx3-ubyte")
    command.add_argument("labels", metavar="LABELS", help="such as train-labels-idx1-ubyte.gz")
    command.add_argument("db", metavar="DB")
    command.flag("siamese", action="store_true", help="store random pairs of images, of label 1 where theirs are equal")
    command.flag("seed", type=int, default=0, metavar="N", help="of the random pairs")
    add_backend_flag(command)


def _convert(a: argparse.Namespace) -> None:
    count = readers.convert_mnist(a.images, a.labels, a.db, a.backend, a.siamese, a.seed)
    log.info("Processed %d files.", count)
