"""ImageReader: records of an image list, whose files are read one by one."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np

from readers.errors import RecordError, SourceError, reason
from readers.files import read_input
from readers.image import decode_image, resize
from readers.image_list import ImageList

Content = tuple[bytes, int]  # of an image file, and the label


class ImageReader:
    """Reads the images of the list `source`, by index in the list's order.

    `root` is prepended to the names (see `under`). `height` and `width`, unless 0, are the size to resize to. Images
    have 3 channels, B G R, or 1 unless `color`. Raises SourceError for a list that can't be read, has no lines, or has
    a line that is not `FILE LABEL`.
    """

    def __init__(
        self, source: str | os.PathLike[str], root: str = "", height: int = 0, width: int = 0, color: bool = True
    ):
        self.source, self.root, self.color = os.fspath(source), root, color
        self.height, self.width = height, width
        self._images = ImageList(source)
        if not len(self._images):
            raise SourceError(f"image list {self.source}: expected lines of 'FILE LABEL', got none")

    def __len__(self) -> int:
        return len(self._images)

    def read(self, indices: Iterable[int]) -> list[tuple[int, Content]]:
        """Return the (index, (content, label)) of each index. Raises RecordError for a file that can't be read."""
        return [(index, self._content(index)) for index in indices]

    def decode(self, value: Content, color: bool | None = None) -> tuple[np.ndarray, int]:
        """Return the image (C x H x W, uint8), resized, and the label. The argument `color` is ignored, as in Caffe.

        Raises RecordError for content that can't be decoded.
        """
        content, label = value
        image = decode_image(content, self.color)
        return (resize(image, self.height, self.width) if self.height else image), label

    def describe(self, index: int) -> str:
        """Return an image's name for messages: its file, and LIST:LINE where it is named."""
        return f"image {under(self.root, self._images[index][0])} ({self.source}:{self._images.line(index)})"

    def _content(self, index: int) -> Content:
        name, label = self._images[index]
        try:
            return read_input(under(self.root, name)), label
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the list
            raise RecordError(f"{self.describe(index)}: {reason(error)}") from None


def under(root: str, name: str) -> str:
    """Return `name` after `root`, as Caffe joins them, but with a slash between them where neither has one."""
    slash = "" if not root or root.endswith("/") or name.startswith("/") else "/"
    return root + slash + name
