"""HDF5Writer: appends rows to an HDF5 file, which gets its name, complete, at `close`."""

from __future__ import annotations

import contextlib
import os
import weakref
from typing import Any

import numpy as np

from readers.datum import shape_text
from readers.errors import SourceError, reason
from readers.files import DEVICE, beside, is_device
from readers.hdf5_file import hdf5_library

CHUNK = 1 << 20  # the most bytes of a chunk of more than one row


class HDF5Writer:
    """Appends rows to the datasets of the new HDF5 file `path`. The first `append` creates it.

    An older file at `path` stays until `close`, which also runs when this object is collected or the program exits.
    Raises ReaderError without h5py, SourceError for a folder that is missing or not writable.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = os.fspath(path)
        self._unfinished = ""
        self._file: Any = None
        hdf5_library()
        if is_device(self.path):
            raise SourceError(f"HDF5 file {self.path}: {DEVICE}")
        folder = os.path.dirname(self.path) or "."
        if not os.path.isdir(folder):
            raise SourceError(f"HDF5 file {self.path}: no such folder: {folder}")
        if not os.access(folder, os.W_OK):
            raise SourceError(f"HDF5 file {self.path}: no permission to write in {folder}")

    def append(self, **arrays: np.ndarray) -> None:
        """Append rows to each dataset. The first rows set its type and the shape of a row.

        Raises SourceError for rows of another shape, or where they can't be written; then the file is removed.
        """
        try:
            if self._file is None:
                self._unfinished = beside(self.path)
                self._file = hdf5_library().File(self._unfinished, "x", locking=False)  # x: O_EXCL, follows no link
                self._end = weakref.finalize(self, _publish, self._file, self._unfinished, self.path)
            for name, array in arrays.items():
                self._append(name, array)
        except (OSError, RuntimeError) as error:
            self.discard()
            raise SourceError(f"HDF5 file {self.path}: can't be written: {reason(error)}") from None

    def close(self) -> None:
        """Complete the file and rename it to `path`. A later `append` creates a new file."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            self._end()
        except (OSError, RuntimeError) as error:
            raise SourceError(f"HDF5 file {self.path}: can't be written: {reason(error)}") from None

    def discard(self) -> None:
        """Remove the unfinished file."""
        file, self._file = self._file, None
        if file is not None:
            self._end.detach()
            with contextlib.suppress(OSError, RuntimeError):
                file.close()
            with contextlib.suppress(OSError):
                os.unlink(self._unfinished)

    def _append(self, name: str, array: np.ndarray) -> None:
        dataset = self._file.get(name) or self._create(name, array)
        if array.shape[1:] != dataset.shape[1:]:
            text = f"rows of '{name}' were {shape_text(dataset.shape[1:])} and now are {shape_text(array.shape[1:])}"
            raise SourceError(f"HDF5 file {self.path}: {text}")
        rows = len(dataset)
        dataset.resize(rows + len(array), 0)
        dataset[rows:] = array

    def _create(self, name: str, array: np.ndarray) -> Any:
        row = max(1, array[:1].nbytes)
        chunk = max(1, min(len(array), CHUNK // row)), *array.shape[1:]
        return self._file.create_dataset(
            name, (0, *array.shape[1:]), array.dtype, maxshape=(None, *array.shape[1:]), chunks=chunk
        )


def _publish(file: Any, unfinished: str, path: str) -> None:
    """Close a file, sync it to disk and rename it; on failure remove it."""
    try:
        file.close()
        with open(unfinished, "rb") as written:
            os.fsync(written.fileno())
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise
