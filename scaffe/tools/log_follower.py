"""LogFollower: a log file, read as it grows, whoever writes it."""

from __future__ import annotations

import io
import os
import socket
import time

from readers.files import open_input
from scaffe.errors import LogError
from scaffe.files.process_state import is_written, start_of
from scaffe.monitor.read_log import CHUNK, LogReader, year_of


class LogFollower:
    """Reads what a file has, and what is appended to it. The file may come later, be truncated, or be replaced.

    `reader` has what the log says. A file that begins anew continues the log. On the host of the run's root it has
    failed, without a line, once that process has ended and nobody writes the file: all of it was killed. The end of a
    with block closes the file.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = os.fspath(path)
        self.reader = LogReader(year_of(path))
        self._file: io.BufferedReader | None = None
        self._grown = time.monotonic()  # when it was seen to have grown

    @property
    def is_there(self) -> bool:
        """Whether the file has been seen."""
        return self._file is not None

    @property
    def idle(self) -> float:
        """Seconds since the file has grown."""
        return max(0.0, time.monotonic() - self._grown)

    def poll(self) -> bool:
        """Read what is new; return whether there was anything. Raise LogError if the file can't be read."""
        try:
            grown = self._poll()
            if self._is_left():
                grown |= self._poll()  # what was written just before
                if not self.reader.outcome:
                    self.reader.fail(f"{self.reader.root} has ended without a last line")
            return grown
        except OSError as error:
            raise LogError(f"{self.path}: {(error.strerror or str(error)).lower()}") from None

    def _is_left(self) -> bool:
        """Return whether the run has not ended by what the log says, and can't go on."""
        root, file = self.reader.root, self._file
        if root is None or file is None or self.reader.outcome or root.host != socket.gethostname():
            return False
        return start_of(root.pid) == -1 and not is_written(file.fileno())

    def __enter__(self) -> LogFollower:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    def _poll(self) -> bool:
        there = self._stat()
        if self._file is None:
            if there is None:
                return False
            self._open(there)
        grown = self._read()
        if there is not None and self._file is not None:
            mine = os.fstat(self._file.fileno())
            if (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):  # replaced
                self._file.close()
                self._open(there)
                grown |= self._read()
            elif mine.st_size < self._file.tell():  # truncated
                self._file.seek(0)
                self.reader.begin_file()
                grown |= self._read()
        return grown

    def _stat(self) -> os.stat_result | None:
        try:
            return os.stat(self.path)
        except FileNotFoundError:
            return None

    def _open(self, there: os.stat_result) -> None:
        self._file = open_input(self.path)
        self.reader.begin_file()
        self._grown = time.monotonic() - max(0.0, time.time() - there.st_mtime)

    def _read(self) -> bool:
        assert self._file is not None
        is_first, grown = not self._file.tell(), False
        while chunk := self._file.read(CHUNK):
            self.reader.feed(chunk)
            grown = True
        if grown and not is_first:
            self._grown = time.monotonic()
        return grown
