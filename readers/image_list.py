"""Lists of images and labels, a line each, kept as the bytes of the file: a million lines take no million objects."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator

from readers.errors import SourceError, reason


class ImageList:
    """The `FILE LABEL` lines of the file `source`, by index; the label stands after the last blank.

    Raises SourceError for a list that can't be read, or naming the line that is no `FILE LABEL`.
    """

    def __init__(self, source: str | os.PathLike[str]):
        self.source = os.fspath(source)
        try:
            with open(source, "rb") as file:
                self.content = file.read()
        except OSError as error:
            raise SourceError(f"image list {self.source}: {reason(error)}") from None
        self._starts, self._stops, self._labels = array("q"), array("q"), array("i")
        for number, (start, line) in enumerate(self._lines(), 1):
            if not line.isspace():
                self._add(start, line, number)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[str, int]:
        """Return the file and the label of a line."""
        return os.fsdecode(self.content[self._starts[index] : self._stops[index]]), self._labels[index]

    def line(self, index: int) -> int:
        """Return the number of a line in the file, where lines may be blank."""
        return 1 + self.content.count(b"\n", 0, self._starts[index])

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield where each line starts, and the line."""
        start = 0
        while start < len(self.content):
            stop = self.content.find(b"\n", start) + 1 or len(self.content)
            yield start, self.content[start:stop]
            start = stop

    def _add(self, start: int, line: bytes, number: int) -> None:
        name, _, label = line.rstrip().rpartition(b" ")
        if not name.strip() or not label.removeprefix(b"-").isdigit() or abs(int(label)) >= 2**31:
            text = os.fsdecode(line.strip())
            raise SourceError(
                f"{self.source}:{number}: expected 'FILE LABEL' with a whole number as label, got '{text}'"
            )
        self._starts.append(start + len(name) - len(name.lstrip()))
        self._stops.append(start + len(name.rstrip()))
        self._labels.append(int(label))
