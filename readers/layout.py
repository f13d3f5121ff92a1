"""DatumLayout: the serialized bytes that raw Datums of one shape share, with which a batch is parsed at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from google.protobuf.message import DecodeError

from readers.datum_pb2 import Datum

SMALL = 32 << 10  # bytes of an image up to which copying it to a stack is faster than a Python loop over images
TAILS = 1 << 16  # the most different ends of records in the cache


class DatumLayout:
    """The bytes before the pixels, which all raw records of a shape (C x H x W) share, and a cache of those after them.

    A protocol buffer's fields may have any order. Caffe and most writers put the shape first, then pixels, label and
    `encoded`. Of a record with this order only the end is parsed; records of one label have the same end.
    """

    def __init__(self, shape: tuple[int, int, int]):
        channels, height, width = self.shape = shape
        self.size = math.prod(shape)
        shaped = Datum(channels=channels, height=height, width=width, data=b"\0").SerializeToString()
        self._head = shaped[:-2] + _varint(self.size)  # all but the length of data, and data
        self._stop = len(self._head) + self.size
        self._labels: dict[bytes, int | None] = {}

    @classmethod
    def of(cls, value: bytes) -> DatumLayout | None:
        """Return the layout of a record; None where the record is encoded or has another order of fields."""
        try:
            datum = Datum.FromString(value)
        except DecodeError:
            return None
        shape = datum.channels, datum.height, datum.width
        if min(shape) <= 0 or len(datum.data) != math.prod(shape):
            return None
        layout = cls(shape)
        return layout if layout.labels([value]) else None

    def labels(self, values: Sequence[bytes]) -> list[int] | None:
        """Return the labels of records; None where a record has another layout."""
        found = []
        for value in values:
            if not value.startswith(self._head) or len(value) < self._stop:
                return None
            tail = value[self._stop :]
            label = self._labels[tail] if tail in self._labels else self._learn(tail)
            if label is None:
                return None
            found.append(label)
        return found

    def images(self, values: Sequence[bytes]) -> np.ndarray | list[np.ndarray]:
        """Return the images (C x H x W, uint8) of records of this layout; small ones in one array (n x C x H x W)."""
        if self.size <= SMALL:
            joined = b"".join([value[len(self._head) : self._stop] for value in values])
            return np.frombuffer(joined, np.uint8).reshape(len(values), *self.shape)
        return [np.frombuffer(value, np.uint8, self.size, len(self._head)).reshape(self.shape) for value in values]

    def store(self, values: Sequence[bytes], out: np.ndarray) -> None:
        """Write the images of records of this layout to `out` (n x C x H x W, uint8)."""
        for row, value in zip(out.reshape(len(values), -1), values, strict=True):
            row[...] = np.frombuffer(value, np.uint8, self.size, len(self._head))

    def _learn(self, tail: bytes) -> int | None:
        """Return the label in the end of a record, and cache it; None where the end has other fields too."""
        if len(self._labels) >= TAILS:
            self._labels.clear()
        self._labels[tail] = label = _label(tail)
        return label


def _label(tail: bytes) -> int | None:
    try:
        datum = Datum.FromString(tail)
    except DecodeError:
        return None
    others = {field.name for field, _ in datum.ListFields()} - {"label", "encoded"}
    return None if others or datum.encoded else datum.label


def _varint(number: int) -> bytes:
    """Return the varint of a number, as protocol buffers encode it."""
    return Datum(label=number).SerializeToString()[1:]
