"""convert_mnist: a database from MNIST's files in the idx format, gzipped or not (LeCun et al., 1998)."""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from collections.abc import Iterator

import numpy as np

from readers.database_writer import write_database
from readers.datum_pb2 import Datum
from readers.errors import SourceError, reason
from readers.files import read_input
from readers.stores import Record

GZIP = b"\x1f\x8b"
UINT8 = 8  # the type code of idx


def convert_mnist(
    images: str | os.PathLike[str],
    labels: str | os.PathLike[str],
    db: str | os.PathLike[str],
    backend: str = "lmdb",
    siamese: bool = False,
    seed: int = 0,
) -> int:
    """Build the database `db` from a file of images (N x H x W) and one of labels (N); return N.

    Keys and Datums are those of Caffe's convert_mnist_data. With `siamese` they are those of its
    convert_mnist_siamese_data, but for the choice of the pairs: N pairs of images, each in two channels, of label 1
    where the images' labels are equal, else 0. The images of pair n are row n of the integers (N x 2) that
    numpy.random.RandomState(seed) draws from 0 to N - 1.

    `backend` is lmdb or leveldb. Raises SourceError for a file that is missing, damaged or of another kind, and where
    the numbers of labels and images differ; ReaderError for a LevelDB without plyvel.
    """
    pixels, classes = read_idx(images, 3), read_idx(labels, 1)
    if len(pixels) != len(classes):
        raise SourceError(f"{labels}: expected a label for each of {len(pixels)} images, got {len(classes)}")
    records = _pairs(pixels, classes, seed) if siamese else _images(pixels, classes)
    return write_database(db, records, backend)


def _images(pixels: np.ndarray, classes: np.ndarray) -> Iterator[Record]:
    """Yield a record for each image (N x H x W) and label (N)."""
    height, width = pixels.shape[1:]
    datum = Datum(channels=1, height=height, width=width)
    for n, label in enumerate(classes.tolist()):
        yield b"%08d" % n, plain_datum(datum, pixels[n].tobytes(), label)


def _pairs(pixels: np.ndarray, classes: np.ndarray, seed: int) -> Iterator[Record]:
    """Yield a record for each of N random pairs of images (N x H x W) and labels (N)."""
    height, width = pixels.shape[1:]
    datum = Datum(channels=2, height=height, width=width)
    count = len(pixels)
    drawn = np.random.RandomState(seed % 2**32).randint(0, count, (count, 2)) if count else ()
    for n, pair in enumerate(drawn):
        yield b"%08d" % n, plain_datum(datum, pixels[pair].tobytes(), int(np.ptp(classes[pair]) == 0))


def read_idx(path: str | os.PathLike[str], axes: int) -> np.ndarray:
    """Return the uint8 array of an idx file. Raises SourceError for another number of axes or a truncated file."""
    content = _unzipped(path)
    zeros, kind, found = struct.unpack_from(">HBB", content) if len(content) >= 4 else (1, 0, 0)
    header = 4 + 4 * found
    if zeros or kind != UINT8 or found != axes or len(content) < header:
        raise SourceError(f"{path}: expected an idx file of bytes with {axes} axes, which begins 00 00 08 {axes:02x}")
    shape = struct.unpack_from(f">{axes}I", content, 4)
    if len(content) - header != math.prod(shape):
        text = " x ".join(map(str, shape))
        raise SourceError(f"{path}: expected {math.prod(shape)} bytes for {text}, got {len(content) - header}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def plain_datum(datum: Datum, pixels: bytes, label: int) -> bytes:
    """Return `datum`, serialized, with these pixels and this label.

    The field `encoded` is not set, as in the databases of Caffe's own convert_mnist_data and convert_cifar_data.
    """
    datum.data, datum.label = pixels, label
    return datum.SerializeToString()


def _unzipped(path: str | os.PathLike[str]) -> bytes:
    try:
        content = read_input(path)
        return gzip.decompress(content) if content.startswith(GZIP) else content
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{path}: {reason(error)}") from None
