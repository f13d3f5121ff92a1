"""compute_image_mean: the mean image of a database."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import numpy as np

from readers.bar import bar
from readers.database import Database, open_database
from readers.datum import shape_text, write_mean
from readers.errors import RecordError
from readers.files import check_folder_of
from readers.in_order import in_order

BLOCK = 256  # records of a partial sum
PIECE = 32  # records of one read


def compute_image_mean(
    db: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, progress: bool = True, threads: int = 0
) -> np.ndarray:
    """Return the mean image (C x H x W, float32) of a database, and write it to the .binaryproto file `out` if given.

    `db` is a source of open_database. `threads` is the number of threads; 0 for one on each core. Raises RecordError if
    a record can't be decoded or has another shape than the first.
    """
    if out is not None:
        check_folder_of(out)
    with open_database(db) as source:
        blocks = block_count(source)
        sums = block_sums(source, range(blocks), threads)
        mean = mean_of(bar(sums, db, "block", progress, blocks), len(source))
    assert mean is not None  # a database is never empty
    if out is not None:
        write_mean(out, mean)
    return mean


def block_count(source: Database) -> int:
    """Return the number of blocks of a database."""
    return -(-len(source) // BLOCK)


def block_sums(source: Database, blocks: Iterable[int], threads: int = 0) -> Iterator[np.ndarray]:
    """Yield the sum (C x H x W, float64) of the images in each block.

    Block b has the records from b * BLOCK on. Partial sums that are added in the order of the blocks have the same bits
    for any number of threads and processes. Sums of integers, as in most images, are exact.
    """
    [(key, value)] = source.read([0])
    shape = _decode(source, key, value).shape

    def block_sum(block: int) -> np.ndarray:
        total = np.zeros(shape)
        stop = min(len(source), (block + 1) * BLOCK)
        for start in range(block * BLOCK, stop, PIECE):
            for key, value in source.read(range(start, min(stop, start + PIECE))):
                total += _fitting(source, key, value, shape)
        return total

    return in_order(block_sum, blocks, threads)


def mean_of(sums: Iterable[np.ndarray], records: int) -> np.ndarray | None:
    """Return the mean (C x H x W, float32) of so many records from the sums of blocks in order; None without blocks."""
    total: np.ndarray | None = None
    for one in sums:
        total = one if total is None else np.add(total, one, out=total)
    return None if total is None else total.astype(np.float32) / np.float32(records)


def _fitting(source: Database, key: object, value: object, shape: tuple[int, ...]) -> np.ndarray:
    """Return a record's image. Raises RecordError where its shape differs from the first one's."""
    image = _decode(source, key, value)
    if image.shape != shape:
        text = f"{shape_text(image.shape)}, but the first record is {shape_text(shape)}"
        raise RecordError(f"{source.describe(key)} is {text}")
    return image


def _decode(source: Database, key: object, value: object) -> np.ndarray:
    try:
        return source.decode(value)[0]
    except RecordError as error:
        raise RecordError(f"{source.describe(key)}: {error}") from None
