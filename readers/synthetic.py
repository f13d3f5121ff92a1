"""SyntheticReader: random images without a file, for benchmarks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from math import prod

import numpy as np

from readers.database import Database, register
from readers.errors import SourceError
from readers.keyed import bounded, key

PREFIX = "synthetic:"
FORM = re.compile(PREFIX + r"(\d+)x(\d+)x(\d+)x(\d+)(?::(\d+)(?::(\d+))?)?$")
OFFSETS = 1 << 16  # number of different images
MOST = 1 << 62
IMAGE_BYTES = 1 << 30
IMAGE = 0  # key of the random numbers


@register
class SyntheticReader(Database):
    """The records of `source`: `synthetic:RECORDSxCxHxW[:CLASSES[:SEED]]`, by default 10 classes and seed 0.

    Each image is a window of one random sequence of bytes, so that a record takes neither time nor memory. The start of
    the window depends on the seed and the index, and determines the label. Raises SourceError for another text.
    """

    precedence = 0

    def __init__(self, source: str | os.PathLike[str]):
        super().__init__(source)
        source = self.source
        match = FORM.match(source)
        if match is None:
            raise SourceError(f"{source}: expected {PREFIX}RECORDSxCxHxW[:CLASSES[:SEED]]")
        self._records, *shape = map(int, match.groups()[:4])
        self._classes, self._seed = int(match[5] or 10), int(match[6] or 0)
        if min(self._records, self._classes, *shape) < 1:
            raise SourceError(f"{source}: expected numbers of 1 or more")
        if max(self._records, self._classes, self._seed) >= MOST or prod(shape) > IMAGE_BYTES:
            raise SourceError(f"{source}: expected numbers below {MOST}, and images of at most {IMAGE_BYTES} bytes")
        self._shape = tuple(shape)
        self._size = int(np.prod(shape))
        self._bytes = np.random.default_rng(self._seed).integers(0, 256, self._size + OFFSETS, np.uint8)

    @classmethod
    def opens(cls, source: str) -> bool:
        """Return whether `source` begins with `synthetic:`."""
        return source.startswith(PREFIX)

    def __len__(self) -> int:
        return self._records

    def read(self, indices: Iterable[int]) -> list[tuple[int, int]]:
        """Return the (index, start of its image) of each index. Raises IndexError outside the range."""
        wanted = np.fromiter(indices, np.int64)
        for index in wanted[(wanted < 0) | (wanted >= self._records)][:1]:
            raise IndexError(f"{self.source}: record {index} of {self._records}")
        starts = bounded(key(self._seed, IMAGE, wanted), OFFSETS)
        return list(zip(wanted.tolist(), starts.tolist(), strict=True))

    def decode(self, value: int, color: bool | None = None) -> tuple[np.ndarray, int]:
        """Return the image (C x H x W, uint8, read-only) and the label. `color` is ignored."""
        return self._bytes[value : value + self._size].reshape(self._shape), value % self._classes
