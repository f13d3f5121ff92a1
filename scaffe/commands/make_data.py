"""scaffe make-data: data that a model can learn, in the files that it reads."""

from __future__ import annotations

import argparse
import importlib
import os

import numpy as np

from readers.files import read_input
from scaffe.commands.gflags import Parser
from scaffe.commands.models import add_size_flags
from scaffe.commands.parser import add_command
from scaffe.commands.running import alone
from scaffe.errors import ScaffeError
from scaffe.files.atomic import write_atomically
from scaffe.files.outputs import check_replaced
from scaffe.fine_tuning import digits
from scaffe.models import Model, get
from scaffe.models.lstm import WordModel
from scaffe.models.made_up import write_images
from scaffe.models.model import LARGEST
from scaffe.models.rows import RowsModel, write_rows
from scaffe.models.word_lm import TextModel
from scaffe.monitor.log import log
from scaffe.proto.kinds import HDF5

RANK = 28
ROWS, IMAGES = 10_000, 500
TEXT = "pydoc_data.topics"  # of Python's standard library: the language reference, 65,000 words


def add(top: Parser) -> None:
    """Add `make-data`."""
    text = "Write data that a model can learn: made-up rows or images, a text's words, or MNIST's digits."
    command = add_command(top, "make-data", lambda a: alone(lambda: _make(a)), text)
    command.add_argument(
        "name",
        metavar="NAME",
        help="of a model, which scaffe models lists; mnist: 5,000 real digits as folders of pictures",
    )
    command.add_argument("out_dir", metavar="OUT_DIR", help="the folder of the model's sources, such as examples/gnmt")
    command.flag("rows", type=int, metavar="N", help=f"rows to make (default {ROWS}), or images (default {IMAGES})")
    add_size_flags(command)
    command.flag("text", metavar="FILE", help="of the word model (default: Python's language reference)")
    command.flag("seed", type=int, default=1, metavar="N", help="of the made-up rows and images (default 1)")


def _make(a: argparse.Namespace) -> None:
    if a.name == digits.NAME:
        return _make_digits(a)
    model = get(a.name).sized(**(a.sizes or {}))
    for name, value, least in (("rows", a.rows, 2), ("classes", a.classes, 1), ("seed", a.seed, 0)):
        if value is not None and value < least:
            raise ScaffeError(f"--{name} must be {least} or more, got {value}")
        if value is not None and value > LARGEST:
            raise ScaffeError(f"--{name} must be {LARGEST} or less, got {value}")
    if a.text is not None and not isinstance(model, TextModel):
        raise ScaffeError(f"--text says nothing about {model.name}, which reads no text")
    if isinstance(model, WordModel):
        raise ScaffeError(f"there are no data of {model.name} to make; word_lm is the same net over rows of a text")
    for name in ("words.txt", "train.txt", "test.txt", "train.h5", "test.h5"):
        check_replaced("OUT_DIR's", os.path.join(a.out_dir, name), [a.text], [HDF5])
    try:
        paths = _written(model, a)
    except MemoryError:
        raise ScaffeError(f"no memory for these data of {model.name}; use fewer rows or smaller sizes") from None
    for path in paths:
        log.info("Made %s", path)


def _make_digits(a: argparse.Namespace) -> None:
    """Write MNIST's digits as folders of pictures."""
    for name in ("rows", "classes", "sizes", "text"):
        if getattr(a, name) is not None:
            raise ScaffeError(f"--{name} says nothing about {a.name}, whose pictures are real")
    log.info("Made %s, 5,000 pictures in a folder for each digit", digits.write_digits(a.out_dir))


def _written(model: Model, a: argparse.Namespace) -> list[str]:
    """Write a model's data; return the paths of its sources."""
    classes, rng = a.classes or model.classes, np.random.default_rng(a.seed)
    if isinstance(model, TextModel):
        rows, names = model.of_text(_text(a.text), classes)
        paths = write_rows(a.out_dir, {name: array[: a.rows] for name, array in rows.items()})
        write_atomically(os.path.join(a.out_dir, "words.txt"), "".join(f"{name}\n" for name in names).encode())
        return paths
    if isinstance(model, RowsModel):
        return write_rows(a.out_dir, model.made_up(a.rows or ROWS, classes, rng))
    return write_images(a.out_dir, model, a.rows or IMAGES, classes, rng)


def _text(path: str | None) -> str:
    if path is None:
        return "\n".join(importlib.import_module(TEXT).topics.values())
    try:
        return read_input(path).decode(errors="replace")
    except OSError as error:
        raise ScaffeError(f"the text {path} can't be read: {error.strerror}") from None
