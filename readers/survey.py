"""survey: decodes each record of a database once, counts shapes and labels, and names bad records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from readers.bar import bar
from readers.database import Database
from readers.datum import shape_text
from readers.datum_pb2 import Datum
from readers.errors import RecordError
from readers.in_order import in_order

PIECE = 32  # records of one read
FIRST_KEYS = 5
MOST_LABELS = 40  # the most labels that are listed
MOST_BAD = 100  # the most bad records that are named
BAR = 40  # length of the longest bar, characters
MAGICS = {b"\xff\xd8\xff": "JPEG", b"\x89PNG": "PNG", b"BM": "BMP", b"GIF": "GIF"}


@dataclass
class Survey:
    """The records of a database: their number, bytes, shapes, labels and first keys, and messages about bad ones."""

    source: str
    records: int = 0
    size: int = 0
    shapes: Counter[str] = field(default_factory=Counter)
    labels: Counter[int] = field(default_factory=Counter)
    keys: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yield the lines of a report."""
        size = f", {_bytes_text(self.size)}" if self.size else ""  # some kinds' values are no bytes
        yield f"{self.source}: {self.records:,} records{size}"
        yield f"First keys: {', '.join(self.keys)}"
        for shape, count in self.shapes.most_common():
            yield f"Shape {shape}: {count:,}"
        yield from self._label_lines()
        yield from (f"Bad: {text}" for text in self.bad[:MOST_BAD])
        yield f"{len(self.bad):,} of {self.records:,} records are bad" if self.bad else "All records decode."

    def _label_lines(self) -> Iterator[str]:
        if not self.labels:
            return
        labels, most = sorted(self.labels), max(self.labels.values())
        yield (
            f"{len(labels):,} labels, {labels[0]} to {labels[-1]}, "
            f"with {min(self.labels.values()):,} to {most:,} records each"
        )
        width, digits = len(str(labels[-1])), len(f"{most:,}")
        for label in labels[:MOST_LABELS]:
            count = self.labels[label]
            yield f"  {label:>{width}} {count:>{digits},} {'#' * max(1, round(BAR * count / most))}"
        if len(labels) > MOST_LABELS:
            yield f"  ... and {len(labels) - MOST_LABELS:,} more"


@dataclass(frozen=True)
class _Examined:
    key: str
    size: int = 0
    shape: str = ""
    label: int = 0
    error: str = ""


def survey(source: Database, threads: int = 0, progress: bool = False) -> Survey:
    """Decode every record of a database and return the survey. `threads` is the number of threads; 0: one a core."""
    found = Survey(source.source, len(source))

    def examine(start: int) -> list[_Examined]:
        items: list[tuple[Any, Any]] = [*source.read(range(start, min(len(source), start + PIECE)))]
        return [_examine(source, key, value) for key, value in items]

    pieces = in_order(examine, range(0, len(source), PIECE), threads)
    records = (record for piece in pieces for record in piece)
    for record in bar(records, source.source, "record", progress, len(source)):
        found.size += record.size
        if len(found.keys) < FIRST_KEYS:
            found.keys.append(record.key)
        if record.error:
            found.bad.append(record.error)
        else:
            found.shapes[record.shape] += 1
            found.labels[record.label] += 1
    return found


def _examine(source: Database, key: Any, value: Any) -> _Examined:
    name = _key_text(key)
    size = len(value) if isinstance(value, bytes) else 0
    try:
        image, label = source.decode(value)
    except RecordError as error:
        return _Examined(name, size, error=f"{source.describe(key)}: {error}")
    return _Examined(name, size, f"{shape_text(image.shape)}, {_kind(value, image)}", label)


def _kind(value: Any, image: np.ndarray) -> str:
    """Return the form in which a record stores its image."""
    datum = Datum.FromString(value) if isinstance(value, bytes) else Datum()
    if not datum.encoded:
        return "raw" if image.dtype == np.uint8 else "float_data"
    return next((name for magic, name in MAGICS.items() if datum.data.startswith(magic)), "encoded")


def _key_text(key: Any) -> str:
    key = key[1] if isinstance(key, tuple) else key
    return key.decode(errors="backslashreplace") if isinstance(key, bytes) else str(key)


def _bytes_text(size: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} bytes"
