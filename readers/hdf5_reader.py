"""HDF5Reader: rows of HDF5 files, numbered over all files of a list; HDF5Batches: batches of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from readers.batch_queue import Batch, BatchMemory, allocate
from readers.datum import shape_text
from readers.errors import SourceError, reason
from readers.files import open_input, read_input
from readers.hdf5_file import DAMAGED, check_numbers, find, hdf5_library
from readers.shard import Shard

CHUNK_CACHE = 64 << 20  # bytes; with it shuffled rows of one compressed chunk decompress it once


class HDF5Reader:
    """Reads rows of the datasets `names` from the HDF5 files of the list `source`, which has a word for each file.

    Row numbers continue from file to file. `rows` has the number of rows of each file, `shapes` the shape of a row of
    each dataset. Numbers of any type are read as float32. The constructor checks the headers of all files; `read` keeps
    one file open at a time. Raises ReaderError without h5py, and SourceError for:

    - a list or file that can't be read,
    - a dataset that is missing or contains no numbers,
    - datasets with different numbers of rows, or rows that differ from the first file's in shape.
    """

    def __init__(self, source: str | os.PathLike[str], names: Sequence[str]):
        self.source, self.names = os.fspath(source), tuple(names)
        self._lock = threading.Lock()
        self._file: Any = None
        self._opened = -1  # the number of the open file
        self._datasets: list[Any] = []  # those of the open file; finding one takes longer than reading a row
        self._paths = list(_listed(self.source))
        self.shapes: list[tuple[int, ...]] = []
        self.rows = [self._header(path, where) for path, where in self._paths]
        self._starts = np.cumsum([0, *self.rows])
        if not len(self):
            raise SourceError(f"{self.source}: the HDF5 files in this list hold no rows")

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, indices: np.ndarray, out: Sequence[np.ndarray]) -> None:
        """Write the rows (n) to `out`, which has an array (n x ..., float32) for each dataset.

        Consecutive rows are read at once. Raises SourceError for a file that can't be read or has changed.
        """
        files = np.searchsorted(self._starts, indices, side="right") - 1
        breaks = np.flatnonzero((np.diff(indices) != 1) | (np.diff(files) != 0)) + 1
        with self._lock:
            for start, stop in zip([0, *breaks.tolist()], [*breaks.tolist(), len(indices)], strict=True):
                file = int(files[start])
                self._copy(file, int(indices[start] - self._starts[file]), out, start, stop)

    def describe(self, index: int) -> str:
        """Return a row's name for messages: its file and its number in that file, from 0."""
        file = int(np.searchsorted(self._starts, index, side="right")) - 1
        return f"{self._paths[file][0]}: row {index - int(self._starts[file])}"

    def close(self) -> None:
        """Close the file; a later `read` opens it again."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._opened, self._datasets = None, -1, []

    def _copy(self, file: int, row: int, out: Sequence[np.ndarray], start: int, stop: int) -> None:
        """Read consecutive rows of a file, from `row` on, into rows [start, stop) of `out`."""
        last = row + stop - start - 1
        try:
            if file != self._opened:
                self._open(file)
            for dataset, array in zip(self._datasets, out, strict=True):
                array[start:stop] = dataset[row : last + 1]  # much faster than read_direct for few rows
        except (SourceError, *DAMAGED) as error:
            path = self._paths[file][0]
            raise SourceError(f"{path}: rows {row} to {last} can't be read: {reason(error)}") from None

    def _open(self, file: int) -> None:
        self._close()
        self._file = _open(self._paths[file][0])
        expected = [(self.rows[file], *shape) for shape in self.shapes]
        if [_shape(self._file, name) for name in self.names] != expected:
            raise ValueError("the file has changed since this run began")
        self._datasets, self._opened = [find(self._file, name) for name in self.names], file

    def _header(self, path: str, where: str) -> int:
        """Return the number of rows of a file, after checks of its datasets against each other and the first file's."""
        try:
            with _open(path) as file:
                shapes = [_shape(file, name) for name in self.names]
        except (SourceError, *DAMAGED) as error:
            raise SourceError(f"HDF5 file {path} ({where}): {reason(error)}") from None
        rows = [shape[0] for shape in shapes]
        if len(set(rows)) > 1:
            counts = ", ".join(f"{row} in '{name}'" for row, name in zip(rows, self.names, strict=True))
            raise SourceError(f"HDF5 file {path} ({where}): expected as many rows in each dataset, got {counts}")
        self.shapes = self.shapes or [shape[1:] for shape in shapes]
        for name, shape, first in zip(self.names, shapes, self.shapes, strict=True):
            if shape[1:] != first:
                text = f"rows of '{name}' are {shape_text(shape[1:])}, but in the first file {shape_text(first)}"
                raise SourceError(f"HDF5 file {path} ({where}): {text}")
        return rows[0]


class HDF5Batches:
    """Fills batches with this rank's rows of `reader`, without a transform."""

    def __init__(self, reader: HDF5Reader, shard: Shard):
        self.reader, self.shard = reader, shard
        self.shapes: Sequence[tuple[int, ...]] = reader.shapes

    def allocate(self, count: int, memory: BatchMemory | None = None) -> list[Batch]:
        """Return `count` batches of this rank's rows, in `memory` if given."""
        return allocate(count, self.shard.rows, self.shapes, memory)

    def fill(self, number: int, batch: Batch) -> None:
        """Read this rank's part of global batch `number`."""
        self.fill_with(*self.shard.places(number), batch)

    def fill_with(self, epochs: np.ndarray, indices: np.ndarray, batch: Batch) -> None:
        """Read the rows `indices` (n); `epochs` has no effect."""
        self.reader.read(indices, batch.arrays)
        batch.keys = indices.tolist()

    def describe(self, key: Any) -> str:
        """Return a row's name for messages."""
        return self.reader.describe(key)


def _open(path: str) -> Any:
    """Open a file for reading, without HDF5's file lock: many network file systems have no locks."""
    open_input(path).close()  # HDF5 would wait for a pipe
    return hdf5_library().File(path, "r", locking=False, rdcc_nbytes=CHUNK_CACHE)


def _listed(source: str) -> Iterator[tuple[str, str]]:
    """Yield each file of a list, and LIST:LINE where it is named."""
    try:
        lines = read_input(source).decode(errors="surrogateescape").splitlines(keepends=True)
    except (OSError, ValueError) as error:
        raise SourceError(f"HDF5 list {source}: {reason(error)}") from None
    if lines and lines[0].startswith("\udc89HDF"):
        raise SourceError(f"HDF5 list {source}: expected a text file with the names of HDF5 files, got an HDF5 file")
    if not "".join(lines).strip():
        raise SourceError(f"HDF5 list {source}: expected the names of HDF5 files, got none")
    for number, line in enumerate(lines, 1):
        yield from ((word, f"{source}:{number}") for word in line.split())


def _shape(file: Any, name: str) -> tuple[int, ...]:
    """Return the shape of a dataset of numbers. Raises SourceError for anything else."""
    dataset = find(file, name)
    if not hasattr(dataset, "dtype"):
        raise SourceError(f"no dataset '{name}', which is the name of a top; datasets here: {_datasets(file)}")
    check_numbers(dataset, name)
    if not dataset.shape:
        raise SourceError(f"expected rows in '{name}', got a scalar")
    shape: tuple[int, ...] = dataset.shape
    return shape


def _datasets(file: Any) -> str:
    names = [key for key in file if isinstance(file.get(key, getlink=True), hdf5_library().HardLink)]
    return ", ".join(sorted(key for key in names if hasattr(file[key], "dtype"))) or "none"
