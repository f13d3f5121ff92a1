"""What can go wrong in reading, as a tree. Each message is one line for people.

ReaderError
├── SourceError     a database, list or file: missing, empty, truncated, of another kind, no permission
├── RecordError     one record: its source and key, what was expected, what came
└── EndOfBatches    a batch was asked for after the last one
"""

from __future__ import annotations


class ReaderError(Exception):
    """Whatever a user of the readers can mend."""


class SourceError(ReaderError):
    """A database, list or file that can't be read or written."""


class RecordError(ReaderError):
    """A record that can't be decoded or does not fit the first one."""


class EndOfBatches(ReaderError):
    """A batch was asked for after the last one."""


def reason(error: Exception) -> str:
    """Return the plain words of an operating system's or a library's error, in one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return " ".join(str(error).split()) or type(error).__name__
