"""Abort: end the job with an error message that arrives."""

from __future__ import annotations

import fcntl
import struct
import sys
import termios
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from mpi4py import MPI

PATIENCE = 2  # seconds that a launcher may take to read a message


def abort(comm: MPI.Intracomm, code: int, text: str) -> None:
    """Write `text` to stderr, wait until the launcher has read it, and end all ranks with exit code `code`.

    MPI_Abort kills this process at once, and a launcher may drop what is left in its pipes.
    """
    write(text)
    comm.Abort(code)


def write(text: str) -> None:
    """Write `text` to stderr in one piece, and return when the reader of the pipe has taken it, or after 2 s."""
    sys.stderr.write(text)
    sys.stderr.flush()
    end = time.monotonic() + PATIENCE
    while unread(sys.stderr) and time.monotonic() < end:
        time.sleep(1e-3)


def unread(file: TextIO) -> int:
    """Return how many of the bytes written into a pipe are still in it; 0 for a file that is no pipe."""
    try:
        return int(struct.unpack("i", fcntl.ioctl(file.fileno(), termios.FIONREAD, bytes(4)))[0])
    except OSError:  # also where the file has no number
        return 0
