"""ImageList: the lines of an image list, stored as the bytes of the file, without a Python object for each line."""

from __future__ import annotations

import io
import os
from array import array

from readers.errors import SourceError, reason
from readers.files import read_input


class ImageList:
    """The `FILE LABEL` lines of the file `source`, by index. The label follows the last blank of a line.

    Raises SourceError for a list that can't be read, and for another line, which the error names.
    """

    def __init__(self, source: str | os.PathLike[str]):
        self.source = os.fspath(source)
        try:
            self.content = read_input(source)
        except (OSError, ValueError) as error:
            raise SourceError(f"image list {self.source}: {reason(error)}") from None
        self._starts, self._stops, self._labels = array("q"), array("q"), array("i")
        self._parse()

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[str, int]:
        """Return the file and the label of a line."""
        return os.fsdecode(self.content[self._starts[index] : self._stops[index]]), self._labels[index]

    def line(self, index: int) -> int:
        """Return the line number in the file, which may have blank lines, of an index."""
        return 1 + self.content.count(b"\n", 0, self._starts[index])

    def _parse(self) -> None:
        """Store for each line that is not blank the start and stop of its file name, and its label."""
        start = 0
        for number, line in enumerate(io.BytesIO(self.content), 1):
            name, _, label = line.rstrip().rpartition(b" ")
            if label:
                try:
                    self._labels.append(_whole(label))
                    self._starts.append(start + len(name) - len(name.lstrip()))
                    self._stops.append(start + len(name.rstrip()))
                except (ValueError, OverflowError):
                    name = b""
                if not name.strip():
                    text = f"expected 'FILE LABEL' with a whole number as label, got '{os.fsdecode(line.strip())}'"
                    raise SourceError(f"{self.source}:{number}: {text}")
            start += len(line)


def _whole(label: bytes) -> int:
    """Return a label written in digits. Raises ValueError for other forms that int() accepts."""
    if not label.removeprefix(b"-").isdigit():
        raise ValueError(label)
    return int(label)
