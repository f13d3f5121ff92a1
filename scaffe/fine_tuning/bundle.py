"""A classifier's folder: deploy net, weights, names of the classes, and how a picture becomes the input."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scaffe.engine import Engine
from scaffe.errors import ScaffeError
from scaffe.files.atomic import write_atomically
from scaffe.pictures.classifier import Classifier
from scaffe.pictures.images_net import PIXELS
from scaffe.proto.files import read_bytes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEPLOY, WEIGHTS, LABELS, TRANSFORM = "deploy.prototxt", "weights.caffemodel", "labels.txt", "transform.toml"
B_G_R = (2, 1, 0)  # of R G B
FIELDS = {"resize": list, "gray": bool, "mean": list, "scale": float}


class Prepared(NamedTuple):
    """How a picture becomes the input: resized to (height, width), whose middle is cropped; (pixels - mean) scale."""

    resize: tuple[int, int]
    gray: bool
    mean: Sequence[float]
    scale: float

    def text(self) -> str:
        """Return the content of transform.toml."""
        order = "grey" if self.gray else "B, G, R"
        return (
            "# How a picture becomes the net's input, as in training. scaffe classify reads this.\n"
            f"resize = [{self.resize[0]}, {self.resize[1]}]  # height, width; the net's input is the middle of that\n"
            f"gray = {str(self.gray).lower()}  # channels: {order}, from 0 to 255\n"
            f"mean = [{', '.join(f'{value:g}' for value in self.mean)}]  # of each channel, subtracted\n"
            f"scale = {float(self.scale)!r}  # factor behind that\n"
        )


def is_bundle(path: str) -> bool:
    """Return whether a folder holds a classifier."""
    return all(os.path.isfile(os.path.join(path, name)) for name in (DEPLOY, TRANSFORM))


def read_transform(folder: str) -> Prepared:
    """Return how a folder's classifier prepares pictures. Raise ScaffeError for a file with other content."""
    path = os.path.join(folder, TRANSFORM)
    try:
        found = tomllib.loads(read_bytes(path, ScaffeError).decode())
    except ValueError as error:
        raise ScaffeError(f"{path}: {error}") from None
    for name, kind in FIELDS.items():
        value = found.get(name)
        if not isinstance(value, kind) and not (kind is float and type(value) is int):
            raise ScaffeError(f"{path}: expected {name} = a {kind.__name__}, got {value!r}")
    height, width = (*found["resize"], None, None)[:2]
    if len(found["resize"]) != 2 or not all(type(n) is int and n > 0 for n in (height, width)):
        raise ScaffeError(f"{path}: expected resize = [height, width], got {found['resize']}")
    if not found["mean"] or not all(type(value) in (int, float) for value in found["mean"]):
        raise ScaffeError(f"{path}: expected mean = a number for each channel, got {found['mean']}")
    return Prepared((height, width), found["gray"], found["mean"], float(found["scale"]))


def open_classifier(folder: str, engine: Engine) -> tuple[Classifier, bool]:
    """Return a folder's classifier, and whether it takes grey pictures. Raise ScaffeError where a file is wrong."""
    prepared = read_transform(folder)
    files = os.path.join(folder, DEPLOY), os.path.join(folder, WEIGHTS)
    mean, swap = np.array(prepared.mean, np.float32), None if prepared.gray else B_G_R
    net = Classifier(*files, prepared.resize, mean, prepared.scale, PIXELS, swap, engine=engine)
    return net, prepared.gray


def write_text(folder: str, name: str, text: str) -> str:
    """Write a file of a folder; return its path."""
    path = os.path.join(folder, name)
    write_atomically(path, text.encode(errors="surrogateescape"))
    return path
