"""R-CNN's window files: images, and the boxes in each with their labels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import TextIOWrapper

import numpy as np

from readers.errors import SourceError, reason
from readers.files import open_input


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of a file: the image of each, its label, its box (n x 4: x1 y1 x2 y2, inclusive) and its line."""

    images: np.ndarray
    labels: np.ndarray
    boxes: np.ndarray
    lines: np.ndarray

    def __len__(self) -> int:
        return len(self.images)


def read_windows(
    source: str | os.PathLike[str], fg_threshold: float, bg_threshold: float
) -> tuple[list[str], Windows, Windows]:
    """Return the images of a window file, its foreground windows and its background windows.

    A window with an overlap of `fg_threshold` or more is foreground; one below `bg_threshold` is background, with label
    0. For each image the file has `# NUMBER`, image file, channels, height, width, number of windows, and for each
    window `LABEL OVERLAP X1 Y1 X2 Y2`. Raises SourceError, which names the line, for other content.
    """
    images: list[str] = []
    windows: list[tuple[float, ...]] = []  # image, line, label, overlap, x1, y1, x2, y2
    for name, rows in _images(_Words(os.fspath(source))):
        windows += [(len(images), *row) for row in rows]
        images.append(name)
    table = np.array(windows, np.float64).reshape(-1, 8)
    overlaps = table[:, 3].astype(np.float32)
    foreground = overlaps >= np.float32(fg_threshold)
    background = ~foreground & (overlaps < np.float32(bg_threshold))
    for row in table[foreground & (table[:, 2] < 1)][:1]:
        raise SourceError(f"{source}:{row[1]:.0f}: expected a label above 0 in the foreground, got {row[2]:.0f}")
    table[background, 2] = 0
    return images, _windows(table[foreground]), _windows(table[background])


def _windows(table: np.ndarray) -> Windows:
    whole = table.astype(np.int64)
    return Windows(whole[:, 0], whole[:, 2], whole[:, 4:], whole[:, 1])


class _Words:
    """The words of a file, regardless of its line breaks, as Caffe reads it."""

    def __init__(self, source: str):
        self.source, self.line = source, 0
        self._words = self._split()

    def _split(self) -> Iterator[str]:
        try:
            with TextIOWrapper(open_input(self.source), "utf-8", "surrogateescape") as file:
                for self.line, line in enumerate(file, 1):
                    yield from line.split()
        except (OSError, ValueError) as error:
            raise SourceError(f"window file {self.source}: {reason(error)}") from None

    def next(self, what: str) -> str:
        """Return the next word; `what` names it in errors. Raises SourceError at the end of the file."""
        for word in self._words:
            return word
        raise SourceError(f"{self.source}:{self.line}: expected {what}, got the end of the file")

    def number(self, what: str) -> float:
        """Return the next word as a number. Raises SourceError for another word."""
        word = self.next(what)
        try:
            return float(word)
        except ValueError:
            raise SourceError(f"{self.source}:{self.line}: expected {what}, got '{word}'") from None

    def whole(self, what: str) -> int:
        """Return the next word as an integer. Raises SourceError for another word."""
        number = self.number(what)
        if not number.is_integer():
            raise SourceError(f"{self.source}:{self.line}: expected {what}, a whole number, got {number:g}")
        return int(number)

    def images(self) -> Iterator[None]:
        """Read the `#` and the number before each image, and yield; stop at the end of the file."""
        for word in self._words:
            if word != "#":
                raise SourceError(f"{self.source}:{self.line}: expected '# NUMBER' before an image, got '{word}'")
            self.whole("the image's number")
            yield


def _images(words: _Words) -> Iterator[tuple[str, list[tuple[float, ...]]]]:
    """Yield each image's file, and the line and the six numbers of each of its windows."""
    found = False
    for _ in words.images():
        found = True
        name = words.next("an image file")
        for what in ("channels", "height", "width"):
            words.whole(f"the image's {what}")
        yield name, [_window(words) for _ in range(words.whole("the number of windows"))]
    if not found:
        raise SourceError(f"window file {words.source}: there are no images in it")


def _window(words: _Words) -> tuple[float, ...]:
    label, overlap = words.whole("a window's label"), words.number("a window's overlap")
    line = words.line
    return line, label, overlap, *(words.whole(f"a window's {side}") for side in ("x1", "y1", "x2", "y2"))
