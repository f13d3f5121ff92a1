"""scaffe convert-imageset, convert-mnist, convert-cifar10, convert-digits: databases out of images."""

from __future__ import annotations

import argparse
from functools import partial

import readers
from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command
from scaffe.commands.running import alone
from scaffe.monitor.log import log


def add(commands) -> None:
    """Add the four."""
    _add_imageset(commands)
    _add_mnist(commands)
    _add_cifar10(commands)
    _add_digits(commands)


def _add_backend_flag(command: Parser) -> None:
    """Add Caffe's flag for the kind of database, of which there is one, and its other ones."""
    command.flag("backend", choices=("lmdb",), default="lmdb", help="as in Caffe; LMDBs are what is written")
    command.add_caffes()


def _add_imageset(commands) -> None:
    text = (
        "Make an LMDB of the images that a list of 'FILE LABEL' lines names. What is finished survives a kill, in "
        "DB.unfinished: the same command goes on from there."
    )
    command = add_command(commands, "convert-imageset", lambda a: alone(partial(_imageset, a)), text)
    command.add_argument("root", metavar="ROOT", help="folder that the list's names are in")
    command.add_argument("list", metavar="LIST")
    command.add_argument("db", metavar="DB")
    command.flag("gray", action="store_true", help="store one grey channel")
    command.flag("shuffle", action="store_true", help="store in random order")
    command.flag("seed", type=int, default=0, help="of the random order")
    _add_backend_flag(command)
    command.flag("resize-width", type=int, default=0, metavar="N")
    command.flag("resize-height", type=int, default=0, metavar="N")
    command.flag("check-size", action="store_true", help="refuse images of several shapes")
    command.flag("encoded", action="store_true", help="store the files' own bytes, as JPEG or PNG")
    command.flag("encode-type", default="", metavar="png|jpg", help="store all images compressed so")
    command.flag("shards", type=int, default=1, metavar="N", help="make DB a folder of N LMDBs, for striped reading")
    command.flag("threads", type=int, default=0, metavar="N", help="that decode; 0: one for each core")
    text = "what becomes of images that can't be read: told and left out, as Caffe does, or the first one ends it"
    command.flag("bad-records", choices=("skip", "fail"), default="skip", help=text)


def _imageset(a: argparse.Namespace) -> None:
    count = readers.convert_imageset(
        a.root, a.list, a.db, gray=a.gray, shuffle=a.shuffle, seed=a.seed, resize_width=a.resize_width,
        resize_height=a.resize_height, check_size=a.check_size, encoded=a.encoded, encode_type=a.encode_type,
        shards=a.shards, threads=a.threads, say=log.info,
        left_out=log.error if a.bad_records == "skip" else None,
    )  # fmt: skip
    log.info("Processed %d files.", count)


def _add_mnist(commands) -> None:
    def run(a: argparse.Namespace) -> int:
        return alone(lambda: log.info("Processed %d files.", readers.convert_mnist(a.images, a.labels, a.db)))

    text = "Make an LMDB of MNIST's files, or of others in the idx format; they may be gzipped."
    command = add_command(commands, "convert-mnist", run, text, ["convert_mnist_data"])
    command.add_argument("images", metavar="IMAGES", help="such as train-images-idx3-ubyte")
    command.add_argument("labels", metavar="LABELS", help="such as train-labels-idx1-ubyte.gz")
    command.add_argument("db", metavar="DB")
    _add_backend_flag(command)


def _add_cifar10(commands) -> None:
    def run(a: argparse.Namespace) -> int:
        return alone(lambda: tell(*readers.convert_cifar10(a.folder, a.out_dir)))

    def tell(*paths: str) -> None:
        log.info("Wrote %s", ", ".join(paths))

    text = "Make cifar10_train_lmdb, cifar10_test_lmdb and mean.binaryproto of CIFAR-10's binary version."
    command = add_command(commands, "convert-cifar10", run, text, ["convert_cifar_data"])
    command.add_argument("folder", metavar="FOLDER", help="with data_batch_1.bin to data_batch_5.bin, test_batch.bin")
    command.add_argument("out_dir", metavar="OUT_DIR")
    command.add_argument("backend", metavar="lmdb", nargs="?", choices=("lmdb",), help="as in Caffe")


def _add_digits(commands) -> None:
    def run(a: argparse.Namespace) -> int:
        return alone(lambda: readers.convert_digits(a.out_dir))

    text = "Make LMDBs of scikit-learn's 1,797 handwritten digits, enlarged to 28x28."
    command = add_command(commands, "convert-digits", run, text)
    command.add_argument("out_dir", metavar="OUT_DIR")
