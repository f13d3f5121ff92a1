"""convert_digits: databases from scikit-learn's handwritten digits."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from readers.database_writer import write_database
from readers.datum import encode
from readers.errors import ReaderError
from readers.files import make_folder
from readers.stores import Record

DIGITS_SEED = 1797
DIGITS_TEST = 360  # of 1,797


def convert_digits(out_dir: str | os.PathLike[str], backend: str = "lmdb") -> tuple[str, str]:
    """Build digits_train_lmdb (1,437 records) and digits_test_lmdb (360) in `out_dir`; return both paths.

    The 1,797 handwritten digits of scikit-learn, 8 x 8 with values 0 to 16, become 1 x 28 x 28 with values 0
    to 255. With the `backend` leveldb they are LevelDBs, and their names end with it. Existing LMDBs of these names
    are replaced. Raises ReaderError if scikit-learn is not installed, SourceError for a LevelDB that exists.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ReaderError("the digits come with scikit-learn: pip install scikit-learn") from None
    digits = load_digits()
    order = np.random.RandomState(DIGITS_SEED).permutation(len(digits.images))
    parts = {"train": order[DIGITS_TEST:], "test": order[:DIGITS_TEST]}
    make_folder(out_dir)
    paths = {part: os.path.join(out_dir, f"digits_{part}_{backend}") for part in parts}
    for part, chosen in parts.items():
        write_database(paths[part], _digit_records(digits.images[chosen], digits.target[chosen]), backend, replace=True)
    return paths["train"], paths["test"]


def _digit_records(images: np.ndarray, labels: np.ndarray) -> Iterator[Record]:
    """Yield a record for each digit, resized from 8 x 8 to 28 x 28."""
    from PIL import Image

    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        small = Image.fromarray(np.rint(image * (255 / 16)).astype(np.uint8))
        large = np.asarray(small.resize((28, 28), Image.Resampling.BILINEAR))
        yield f"{number:08d}".encode(), encode(large[None], int(label))
