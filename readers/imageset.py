"""convert_imageset: a database from a list of images."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np

from readers.bar import bar
from readers.datum import encode, shape_text
from readers.errors import ReaderError, RecordError, reason
from readers.files import read_input
from readers.image import decode_image, resize
from readers.image_list import ImageList
from readers.image_reader import under
from readers.in_order import in_order
from readers.stores import Record
from readers.threads import check_threads
from readers.unfinished import ResumableWriter

ENCODINGS = {"png": "PNG", "jpg": "JPEG", "jpeg": "JPEG"}
GROUP = 8  # images of one task of a thread


def convert_imageset(
    root: str | os.PathLike[str],
    list_file: str | os.PathLike[str],
    db: str | os.PathLike[str],
    gray: bool = False,
    shuffle: bool = False,
    seed: int = 0,
    resize_width: int = 0,
    resize_height: int = 0,
    check_size: bool = False,
    encoded: bool = False,
    encode_type: str = "",
    shards: int = 1,
    threads: int = 0,
    progress: bool = True,
    say: Callable[[str], object] = lambda line: None,
    left_out: Callable[[str], object] | None = None,
    backend: str = "lmdb",
) -> int:
    """Build the database `db` from a list of `FILE LABEL` lines, files relative to `root`; return its length.

    Keys and Datums are those of Caffe's convert_imageset.

    - `encoded` stores image files: unchanged where possible, else compressed anew as `encode_type` (png or jpg) or the
      file's suffix selects.
    - `check_size` raises RecordError for images of different shapes.
    - `shards` above 1 makes `db` a folder of that many LMDBs, see ShardedLMDB.
    - `threads` is the number of threads; 0 for one on each core.
    - `progress` shows a bar on a terminal.
    - `say` is called with a line when interrupted work is continued, and when work is interrupted: finished records
      stay in DB.unfinished, see ResumableWriter.
    - `left_out` is called with a message for each image that is missing or damaged, and the others are stored. Without
      it the first such image raises RecordError.
    - `backend` is lmdb or leveldb; only an LMDB has shards.

    Raises SourceError for a line that is not `FILE LABEL`, RecordError where no image can be stored.
    """
    if shards < 1:
        raise ReaderError(f"expected 1 shard or more, got {shards}")
    check_threads("threads", threads)
    form = _Conversion(gray, resize_height, resize_width, encoded or bool(encode_type), encode_type, check_size)
    images, root = ImageList(list_file), os.fspath(root)
    order = np.random.RandomState(seed % 2**32).permutation(len(images)) if shuffle else np.arange(len(images))
    arguments = {
        "root": os.path.abspath(root), "sha256 of the list": hashlib.sha256(images.content).hexdigest(),
        "shuffle": shuffle, "seed": seed if shuffle else 0, **asdict(form),
    }  # fmt: skip

    def record(number: int) -> _Made:
        name, label = images[order[number]]
        try:
            datum, shape = form.datum(under(root, name), label)
        except _BadImage as error:
            if left_out is None:
                raise
            return _Made(number, error)
        return _Made(number, (os.fsencode(f"{number:08d}_{name}"), datum), shape)

    def write(writer: ResumableWriter) -> None:
        work = in_order(record, writer.missing(), threads, GROUP)
        first = _first_shape(map(record, range(len(images)))) if check_size else None
        bad = None
        for made in bar(work, db, "image", progress, len(images), writer.done):
            if isinstance(made.record, _BadImage):
                assert left_out is not None
                left_out(str(made.record))
                writer.leave_out(made.number)
                bad = bad or made.record
                continue
            if first and made.shape != first:
                other = f"{shape_text(made.shape)}, but the first is {shape_text(first)}"
                raise RecordError(f"image {under(root, images[order[made.number]][0])} is {other}")
            writer.put(made.number, made.record)
        if bad and not writer.count:
            raise RecordError(f"none of {len(images)} images can be stored; the first: {bad}")

    writer = ResumableWriter(db, len(images), arguments, shards, backend)
    _resumed(writer, write, say)
    return writer.count


class _BadImage(RecordError):
    """An image that can't be read or decoded."""


class _Made(NamedTuple):
    """The result for the image of a number: a record, or the reason why there is none."""

    number: int
    record: Record | _BadImage
    shape: tuple[int, ...] = ()


def _first_shape(made: Iterable[_Made]) -> tuple[int, ...]:
    """Return the shape of the first good image, () if there is none."""
    return next((one.shape for one in made if one.shape), ())


def _resumed(writer: ResumableWriter, write: Callable[[ResumableWriter], None], say: Callable[[str], object]) -> None:
    """Write a database; report work that was found at the start, and work that is kept after a failure."""
    try:
        with writer:
            if writer.done:
                say(f"{writer.folder}: {writer.done} of {writer.total} images are there already; continuing")
            write(writer)
    except BaseException:
        if writer.done:
            say(f"{writer.folder}: {writer.done} of {writer.total} images are kept; the same command continues there")
        raise


@dataclass(frozen=True)
class _Conversion:
    """The conversion of image files to Datums. A height and width of 0 keep the file's."""

    gray: bool
    resize_height: int
    resize_width: int
    encoded: bool
    encode_type: str
    check_size: bool

    def __post_init__(self) -> None:
        height, width = self.resize_height, self.resize_width
        if (height > 0) != (width > 0) or min(height, width) < 0:
            raise ReaderError(f"expected both a resize height and width, got {height} and {width}")
        if self.encode_type and self.encode_type not in ENCODINGS:
            raise ReaderError(f"unknown encode type '{self.encode_type}': expected one of {', '.join(ENCODINGS)}")

    def datum(self, path: str, label: int) -> tuple[bytes, tuple[int, ...]]:
        """Return the Datum of one image file, and the image's shape."""
        try:
            content = read_input(path)
            image = decode_image(content, color=not self.gray)
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the list
            raise _BadImage(f"image {path}: {reason(error)}") from None
        except RecordError as error:
            raise _BadImage(f"image {path} {error}") from None
        if self.resize_height:
            image = resize(image, self.resize_height, self.resize_width)
        return encode(self._encoded(path, content, image) if self.encoded else image, label), image.shape

    def _encoded(self, path: str, content: bytes, image: np.ndarray) -> bytes:
        """Return the content of an image file: unchanged where the image was not changed, else compressed anew."""
        suffix = os.path.splitext(path)[1].lower().lstrip(".")
        kind = self.encode_type or suffix
        if kind not in ENCODINGS:
            raise RecordError(f"image {path}: no encoding for this suffix; give an encode type: png or jpg")
        unchanged = not self.resize_height and not self.gray
        return content if unchanged and ENCODINGS.get(suffix) == ENCODINGS[kind] else _compress(image, ENCODINGS[kind])


def _compress(image: np.ndarray, encoding: str) -> bytes:
    """Return the content of an image file for an image (C x H x W, one channel or B G R)."""
    from PIL import Image

    pixels = image[0] if len(image) == 1 else np.ascontiguousarray(image[::-1].transpose(1, 2, 0))
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, encoding, **({"quality": 95} if encoding == "JPEG" else {}))
    return file.getvalue()
