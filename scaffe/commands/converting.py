"""scaffe convert-digits, convert-imageset and compute-image-mean: databases out of images."""

from __future__ import annotations

import argparse

import readers
from scaffe.commands.parser import add_command
from scaffe.commands.running import alone


def add(commands) -> None:
    """Add the three."""
    _add_digits(commands)
    _add_imageset(commands)
    _add_mean(commands)


def _add_digits(commands) -> None:
    def run(a: argparse.Namespace) -> int:
        return alone(lambda: readers.convert_digits(a.out_dir))

    text = "Make LMDBs of scikit-learn's 1,797 handwritten digits, enlarged to 28x28."
    command = add_command(commands, "convert-digits", run, text)
    command.add_argument("out_dir", metavar="OUT_DIR")


def _add_imageset(commands) -> None:
    def run(a: argparse.Namespace) -> int:
        return alone(
            lambda: readers.convert_imageset(
                a.root, a.list, a.db, gray=a.gray, shuffle=a.shuffle, seed=a.seed, encoded=a.encoded,
                resize_width=a.resize_width, resize_height=a.resize_height,
            )
        )  # fmt: skip

    text = "Make an LMDB of the images that a list of 'FILE LABEL' lines names."
    command = add_command(commands, "convert-imageset", run, text)
    command.add_argument("root", metavar="ROOT", help="folder that the list's names are in")
    command.add_argument("list", metavar="LIST")
    command.add_argument("db", metavar="DB")
    command.flag("gray", action="store_true", help="store one grey channel")
    command.flag("shuffle", action="store_true", help="store in random order")
    command.flag("seed", type=int, default=0, help="of the random order")
    command.flag("resize-width", type=int, default=0, metavar="N")
    command.flag("resize-height", type=int, default=0, metavar="N")
    command.flag("encoded", action="store_true", help="store the files' own bytes, as JPEG or PNG")


def _add_mean(commands) -> None:
    def run(a: argparse.Namespace) -> int:
        return alone(lambda: readers.compute_image_mean(a.db, a.out))

    command = add_command(commands, "compute-image-mean", run, "Write the mean image of an LMDB.")
    command.add_argument("db", metavar="DB")
    command.add_argument("out", metavar="OUT.binaryproto")
