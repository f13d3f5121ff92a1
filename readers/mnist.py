"""convert_mnist: an LMDB from MNIST's files in the idx format, gzipped or not (LeCun et al., 1998)."""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib

import numpy as np

from readers.datum_pb2 import Datum
from readers.errors import SourceError, reason
from readers.lmdb_writer import write_lmdb

GZIP = b"\x1f\x8b"
UINT8 = 8  # the type code of idx


def convert_mnist(images: str | os.PathLike[str], labels: str | os.PathLike[str], db: str | os.PathLike[str]) -> int:
    """Build the LMDB `db` from a file of images (N x H x W) and one of labels (N); return N.

    Keys and Datums are those of Caffe's convert_mnist_data. Raises SourceError for a file that is missing, damaged or
    of another kind, and where the numbers of labels and images differ.
    """
    pixels, classes = read_idx(images, 3), read_idx(labels, 1)
    if len(pixels) != len(classes):
        raise SourceError(f"{labels}: expected a label for each of {len(pixels)} images, got {len(classes)}")
    height, width = pixels.shape[1:]
    datum = Datum(channels=1, height=height, width=width)
    return write_lmdb(
        db, ((b"%08d" % n, plain_datum(datum, pixels[n].tobytes(), label)) for n, label in enumerate(classes.tolist()))
    )


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
        with open(path, "rb") as file:
            content = file.read()
        return gzip.decompress(content) if content.startswith(GZIP) else content
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{path}: {reason(error)}") from None
