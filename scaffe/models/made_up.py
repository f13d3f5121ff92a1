"""Made-up images, whose classes a net for images can learn."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from readers import encode, write_database
from readers.files import make_folder
from readers.stores import Record
from scaffe.models.model import Model
from scaffe.models.rows import TEST_SHARE

_PATCHES = 4  # a class's picture has 4 x 4 patches
_NOISE = 64


def write_images(
    out_dir: str | os.PathLike[str], model: Model, images: int, classes: int, rng: np.random.Generator
) -> list[str]:
    """Write LMDBs of images of the model's shape, by the names of its databases, in `out_dir`; return their paths.

    Each class has a picture of random patches; an image is its class's picture with noise. One image in ten is for
    tests. Raise SourceError where an LMDB can't be written.
    """
    pictures = rng.integers(64, 192, (classes, model.shape[0], _PATCHES, _PATCHES))
    make_folder(out_dir)
    tests = max(1, images // TEST_SHARE)
    paths = []
    for part, count in zip(model.sources, (images - tests, tests), strict=True):
        path = os.path.join(out_dir, os.path.basename(model.source.format(part)))
        write_database(path, _records(pictures, model.shape, count, rng), "lmdb", replace=True)
        paths.append(path)
    return paths


def _records(pictures: np.ndarray, shape: tuple[int, ...], count: int, rng: np.random.Generator) -> Iterator[Record]:
    """Yield records of images (C x H x W) with their classes as labels."""
    places = [np.arange(size) * _PATCHES // size for size in shape[1:]]
    for number in range(count):
        label = int(rng.integers(len(pictures)))
        image = pictures[label][:, places[0][:, None], places[1]] + rng.integers(-_NOISE, _NOISE, shape)
        yield f"{number:08d}".encode(), encode(image.astype(np.uint8), label)
