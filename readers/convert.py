"""Build LMDBs from image lists and from scikit-learn's digits, and the mean image of an LMDB."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from PIL import Image
from tqdm import tqdm

from readers.datum import decode, encode, shape_text, write_mean
from readers.errors import ReaderError, RecordError, SourceError, reason
from readers.image import decode_image, resize
from readers.image_reader import read_list
from readers.lmdb_reader import LMDBReader
from readers.lmdb_writer import Record, write_lmdb

Item = TypeVar("Item")

DIGITS_SEED = 1797
DIGITS_TEST = 360  # of 1,797
ENCODINGS = {"png": "PNG", "jpg": "JPEG", "jpeg": "JPEG"}


def convert_digits(out_dir: str | os.PathLike[str]) -> tuple[str, str]:
    """Build digits_train_lmdb (1,437 records) and digits_test_lmdb (360) in `out_dir`; return both paths.

    The 1,797 handwritten digits of scikit-learn, 8 x 8 with values 0 to 16, become 1 x 28 x 28 with values 0
    to 255. Older ones are replaced. Raises ReaderError if scikit-learn is missing.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ReaderError("the digits come with scikit-learn: pip install scikit-learn") from None
    digits = load_digits()
    order = np.random.RandomState(DIGITS_SEED).permutation(len(digits.images))
    parts = {"train": order[DIGITS_TEST:], "test": order[:DIGITS_TEST]}
    _make_folder(out_dir)
    paths = {part: os.path.join(out_dir, f"digits_{part}_lmdb") for part in parts}
    for part, chosen in parts.items():
        write_lmdb(paths[part], _digit_records(digits.images[chosen], digits.target[chosen]), replace=True)
    return paths["train"], paths["test"]


def convert_imageset(
    root: str | os.PathLike[str],
    list_file: str | os.PathLike[str],
    db: str | os.PathLike[str],
    gray: bool = False,
    shuffle: bool = False,
    seed: int = 0,
    resize_width: int = 0,
    resize_height: int = 0,
    encoded: bool = False,
    encode_type: str = "",
    progress: bool = True,
) -> int:
    """Build the LMDB `db` from a list of `FILE LABEL` lines, files relative to `root`; return their number.

    Keys and Datums are those of Caffe's convert_imageset. `encoded` keeps the files' content where it serves
    as it is, else compresses as `encode_type` (png or jpg) or the file's suffix says. A bar is shown on a
    terminal if `progress`. Raises SourceError naming the line that is no `FILE LABEL`, RecordError naming the
    image that is missing or damaged; nothing is left of `db` then.
    """
    form = _Form(gray, resize_height, resize_width, encoded or bool(encode_type), encode_type)
    lines = read_list(list_file)
    if shuffle:
        lines = [lines[i] for i in np.random.RandomState(seed % 2**32).permutation(len(lines))]
    return write_lmdb(db, _image_records(os.fspath(root), partial(_bar, db, progress, lines), form))


def compute_image_mean(db: str | os.PathLike[str], out: str | os.PathLike[str], progress: bool = True) -> np.ndarray:
    """Write the mean image of an LMDB to the .binaryproto file `out`; return it (C x H x W, float32).

    Raises RecordError if a record can't be decoded or has another shape than the first.
    """
    total: np.ndarray | None = None
    with LMDBReader(db) as reader:
        for index in _bar(db, progress, range(len(reader))):
            image = _mean_term(reader, index, None if total is None else total.shape)
            total = image.astype(np.float64) if total is None else np.add(total, image, out=total)
        assert total is not None  # a reader is never empty
        mean = total.astype(np.float32) / np.float32(len(reader))
    write_mean(out, mean)
    return mean


def _image_records(root: str, lines: Callable[[], Iterable[tuple[str, int]]], form: _Form) -> Iterator[Record]:
    """Yield the record of each image in the list."""
    for number, (name, label) in enumerate(lines()):
        yield os.fsencode(f"{number:08d}_{name}"), form.datum(os.path.join(root, name), label)


@dataclass(frozen=True)
class _Form:
    """What image files become on their way into Datums; a height and width of 0 keep the file's."""

    gray: bool
    height: int
    width: int
    encoded: bool
    encode_type: str

    def __post_init__(self) -> None:
        if (self.height > 0) != (self.width > 0) or min(self.height, self.width) < 0:
            raise ReaderError(f"expected both a resize height and width, got {self.height} and {self.width}")
        if self.encode_type and self.encode_type not in ENCODINGS:
            raise ReaderError(f"unknown encode type '{self.encode_type}': expected one of {', '.join(ENCODINGS)}")

    def datum(self, path: str, label: int) -> bytes:
        """Return the Datum of one image file."""
        try:
            with open(path, "rb") as file:
                content = file.read()
            image = decode_image(content, color=not self.gray)
        except OSError as error:
            raise RecordError(f"image {path}: {reason(error)}") from None
        except RecordError as error:
            raise RecordError(f"image {path} {error}") from None
        if self.height:
            image = resize(image, self.height, self.width)
        return encode(self._encoded(path, content, image) if self.encoded else image, label)

    def _encoded(self, path: str, content: bytes, image: np.ndarray) -> bytes:
        """Return an image file's content as it is where nothing was changed, else compressed anew."""
        suffix = os.path.splitext(path)[1].lower().lstrip(".")
        kind = self.encode_type or suffix
        if kind not in ENCODINGS:
            raise RecordError(f"image {path}: can't tell how to encode it; give an encode type: png or jpg")
        unchanged = not self.height and not self.gray
        return content if unchanged and ENCODINGS.get(suffix) == ENCODINGS[kind] else _compress(image, ENCODINGS[kind])


def _compress(image: np.ndarray, encoding: str) -> bytes:
    """Return the content of an image file (C x H x W, one channel or B G R)."""
    pixels = image[0] if len(image) == 1 else np.ascontiguousarray(image[::-1].transpose(1, 2, 0))
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, encoding, **({"quality": 95} if encoding == "JPEG" else {}))
    return file.getvalue()


def _mean_term(reader: LMDBReader, index: int, expected: tuple[int, ...] | None) -> np.ndarray:
    """Return a record's image; it has the `expected` shape, that of the first record."""
    [(key, value)] = reader.read([index])
    try:
        image, _ = decode(value)
    except RecordError as error:
        raise RecordError(f"{reader.describe(key)}: {error}") from None
    if expected is not None and image.shape != expected:
        first = shape_text(expected)
        raise RecordError(f"{reader.describe(key)} is {shape_text(image.shape)}, but the first record is {first}")
    return image


def _bar(db: str | os.PathLike[str], progress: bool, items: Sequence[Item]) -> Iterable[Item]:
    """Return the items, with a progress bar named after the database if wanted and on a terminal."""
    name = os.path.basename(os.fspath(db).rstrip("/"))
    return tqdm(items, desc=name, unit="image", disable=None if progress else True)


def _digit_records(images: np.ndarray, labels: np.ndarray) -> Iterator[Record]:
    """Yield the records of 8 x 8 digits, enlarged to 28 x 28."""
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        small = Image.fromarray(np.rint(image * (255 / 16)).astype(np.uint8))
        large = np.asarray(small.resize((28, 28), Image.Resampling.BILINEAR))
        yield f"{number:08d}".encode(), encode(large[None], int(label))


def _make_folder(path: str | os.PathLike[str]) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise SourceError(f"{path}: can't be made: {reason(error)}") from None
