"""Records of an image list: files, read one by one."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np

from readers.errors import RecordError, SourceError, reason
from readers.image import decode_image, resize

Content = tuple[bytes, int]  # of an image file, and the label


class ImageReader:
    """Reads the images that the list `source` names, by index in the list's order.

    Names are put after `root` (see `under`). A `height` and `width` other than 0 are what the images are resized
    to. Images have 3 channels, B G R, or 1 unless `color`. Raises SourceError for a list that can't be read, names
    no images, or has a line that is no `FILE LABEL`.
    """

    def __init__(
        self, source: str | os.PathLike[str], root: str = "", height: int = 0, width: int = 0, color: bool = True
    ):
        self.source, self.root, self.color = os.fspath(source), root, color
        self.height, self.width = height, width
        entries = read_list(source)
        if not entries:
            raise SourceError(f"image list {self.source}: expected lines of 'FILE LABEL', got none")
        self._names = [name for name, _ in entries]
        self._labels = np.array([label for _, label in entries], np.int32)

    def __len__(self) -> int:
        return len(self._names)

    def read(self, indices: Iterable[int]) -> list[tuple[int, Content]]:
        """Return the (index, (content, label)) of each index. Raises RecordError for a file that can't be read."""
        return [(index, (self._content(index), int(self._labels[index]))) for index in indices]

    def decode(self, value: Content, color: bool | None = None) -> tuple[np.ndarray, int]:
        """Return the image (C x H x W, uint8), resized, and the label. `color` has no meaning here, as in Caffe.

        Raises RecordError for content that can't be decoded.
        """
        content, label = value
        image = decode_image(content, self.color)
        return (resize(image, self.height, self.width) if self.height else image), label

    def describe(self, index: int) -> str:
        """Return what messages call an image: its file and where the list names it."""
        return f"image {under(self.root, self._names[index])} ({self.source}:{self._line(index)})"

    def _content(self, index: int) -> bytes:
        try:
            with open(under(self.root, self._names[index]), "rb") as file:
                return file.read()
        except OSError as error:
            raise RecordError(f"{self.describe(index)}: {reason(error)}") from None

    def _line(self, index: int) -> int:
        """Return the number of an image's line, looked up in the list as it is now: only messages need it."""
        try:
            with open(self.source, errors="surrogateescape") as file:
                return [number for number, line in enumerate(file, 1) if line.strip()][index]
        except (OSError, IndexError):
            return index + 1


def under(root: str, name: str) -> str:
    """Return a list's name with `root` before it, as Caffe does, but also where neither has the slash between them."""
    slash = "" if not root or root.endswith("/") or name.startswith("/") else "/"
    return root + slash + name


def read_list(list_file: str | os.PathLike[str]) -> list[tuple[str, int]]:
    """Return the (file, label) of each line; the label stands after the last blank.

    Raises SourceError for a list that can't be read, or naming the line that is no `FILE LABEL`.
    """
    try:
        with open(list_file, encoding="utf-8", errors="surrogateescape") as file:
            return [_pair(line.strip(), f"{list_file}:{n}") for n, line in enumerate(file, 1) if line.strip()]
    except OSError as error:
        raise SourceError(f"image list {list_file}: {reason(error)}") from None


def _pair(line: str, where: str) -> tuple[str, int]:
    name, _, label = line.rpartition(" ")
    if not name or not label.removeprefix("-").isdecimal() or abs(int(label)) >= 2**31:
        raise SourceError(f"{where}: expected 'FILE LABEL' with a whole number as label, got '{line}'")
    return name.rstrip(), int(label)
