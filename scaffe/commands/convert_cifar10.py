"""scaffe convert-cifar10."""

from __future__ import annotations

import argparse
import os

import readers
from scaffe.commands.databases import BACKENDS, add_backend_flag
from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command
from scaffe.commands.running import alone
from scaffe.files.outputs import check_replaced
from scaffe.monitor.log import log

RANK = 22


def add(top: Parser) -> None:
    """Add `convert-cifar10`."""
    text = "Make cifar10_train_lmdb, cifar10_test_lmdb and mean.binaryproto of CIFAR-10's binary version."
    command = add_command(top, "convert-cifar10", lambda a: alone(lambda: _convert(a)), text, ["convert_cifar_data"])
    command.add_argument("folder", metavar="FOLDER", help="with data_batch_1.bin to data_batch_5.bin, test_batch.bin")
    command.add_argument("out_dir", metavar="OUT_DIR")
    text = "kind of the databases, as in Caffe; the same as --backend"
    command.add_argument("kind", metavar="lmdb|leveldb", nargs="?", choices=BACKENDS, help=text)
    add_backend_flag(command)


def _convert(a: argparse.Namespace) -> None:
    check_replaced("mean file", os.path.join(a.out_dir, "mean.binaryproto"))
    log.info("Wrote %s", ", ".join(readers.convert_cifar10(a.folder, a.out_dir, a.kind or a.backend)))
