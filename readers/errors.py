"""The exceptions of the readers, as a tree. Each message is one line.

ReaderError
├── SourceError     a database, list or file is missing, empty, truncated, of another kind or not permitted
├── RecordError     a record is damaged or does not fit; names source, key, expected, got
└── EndOfBatches    `get` was called after the last batch
"""

from __future__ import annotations


class ReaderError(Exception):
    """Base class of errors that a user can correct."""


class SourceError(ReaderError):
    """A database, list or file that can't be read or written."""


class RecordError(ReaderError):
    """A record that can't be decoded, or whose shape does not fit."""


class EndOfBatches(ReaderError):
    """A call of `get` after the last batch."""


def reason(error: Exception) -> str:
    """Return the text of an operating system's or a library's error, in one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    first = error.args[0] if error.args else ""  # bytes in LevelDB's errors
    text = first.decode(errors="replace") if isinstance(first, bytes) else str(error)
    return " ".join(text.split()) or type(error).__name__
