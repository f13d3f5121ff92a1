"""convert_cifar10: databases from the binary version of CIFAR-10 (Krizhevsky, 2009)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np

from readers.database_writer import write_database
from readers.datum_pb2 import Datum
from readers.errors import SourceError, reason
from readers.files import make_folder, read_input
from readers.image_mean import compute_image_mean
from readers.mnist import plain_datum
from readers.stores import Record

SHAPE = (3, 32, 32)  # R G B
CLASSES = 10
RECORD = 1 + 3 * 32 * 32  # bytes: label, pixels
TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = ("test_batch.bin",)


def convert_cifar10(
    folder: str | os.PathLike[str], out_dir: str | os.PathLike[str], backend: str = "lmdb"
) -> tuple[str, str, str]:
    """Build cifar10_train_lmdb, cifar10_test_lmdb and mean.binaryproto in `out_dir`; return their paths.

    With the `backend` leveldb they are LevelDBs, and their names end with it. Existing LMDBs are replaced.
    `folder` contains data_batch_1.bin to data_batch_5.bin and test_batch.bin. Keys and Datums are those of Caffe's
    convert_cifar_data, whose channels are R G B. The mean is that of the training images. Raises SourceError for a file
    that is missing, truncated or of another kind.
    """
    batches = {part: [_read(os.path.join(folder, name)) for name in names] for part, names in _PARTS.items()}
    make_folder(out_dir)
    paths = {part: os.path.join(out_dir, f"cifar10_{part}_{backend}") for part in _PARTS}
    for part, path in paths.items():
        write_database(path, _records(batches[part]), backend, replace=True)
    mean = os.path.join(out_dir, "mean.binaryproto")
    compute_image_mean(paths["train"], mean, progress=False)
    return paths["train"], paths["test"], mean


_PARTS = {"train": TRAIN, "test": TEST}


def _records(batches: Sequence[np.ndarray]) -> Iterator[Record]:
    """Yield a record for each row of the files' bytes (N x RECORD each)."""
    channels, height, width = SHAPE
    datum = Datum(channels=channels, height=height, width=width)
    for number, record in enumerate(record for batch in batches for record in batch):
        yield b"%05d" % number, plain_datum(datum, record[1:].tobytes(), int(record[0]))


def _read(path: str) -> np.ndarray:
    """Return the bytes of a file's records (N x RECORD)."""
    try:
        content = np.frombuffer(read_input(path), np.uint8)
    except OSError as error:
        raise SourceError(f"{path}: {reason(error)}; expected CIFAR-10's binary version") from None
    if not content.size or content.size % RECORD:
        raise SourceError(f"{path}: expected records of {RECORD} bytes, got {content.size} bytes: cut off?")
    records = content.reshape(-1, RECORD)
    if records[:, 0].max() >= CLASSES:
        raise SourceError(f"{path}: expected labels of 0 to {CLASSES - 1}, got {records[:, 0].max()}: not CIFAR-10?")
    return records
