"""Databases of labelled images: their base class, their registry, and `open_database`.

A kind of database is a subclass of Database in a file of this package, with the decorator `register`. The registry
imports the package's files, so that a new file is found without being named anywhere else.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cache
from typing import Any, ClassVar, TypeVar

import numpy as np

from readers.datum import decode
from readers.errors import SourceError, reason

D = TypeVar("D", bound="Database")


class Database(ABC):
    """Labelled images by index, 0 to len - 1. A subclass is made from `source` alone.

    One thread at a time reads; several threads may decode at once.
    """

    precedence: ClassVar[int] = 9  # where two kinds accept a source, the lower number opens it
    name: ClassVar[str] = ""  # of the kind, for the error where a folder can't be opened
    mark: ClassVar[str] = ""  # what a folder of this kind contains, for the error where no kind accepts a folder

    def __init__(self, source: str | os.PathLike[str]):
        self.source = os.fspath(source)

    @classmethod
    @abstractmethod
    def opens(cls, source: str) -> bool:
        """Return whether `source` is a database of this kind."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, indices: Iterable[int]) -> list[tuple[Any, Any]]:
        """Return the (key, value) of each index. Raises IndexError outside the range."""

    def decode(self, value: Any, color: bool | None = None) -> tuple[np.ndarray, int]:
        """Return the image (C x H x W, uint8 or float32) and the label of a value: here a Datum, see datum.decode.

        Raises RecordError for a damaged record.
        """
        return decode(value, color)

    def describe(self, key: Any) -> str:
        """Return a record's name for messages: the database and the key."""
        name = f"'{key.decode(errors='backslashreplace')}'" if isinstance(key, bytes) else key
        return f"{self.source}: record {name}"

    def close(self) -> None:  # noqa: B027  most kinds keep no file open
        """Release files; a later `read` opens them again."""

    def __enter__(self: D) -> D:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


_registered: dict[str, type[Database]] = {}


def register(kind: type[D]) -> type[D]:
    """Add a kind of database to those that `open_database` asks; for use as a decorator.

    Raise ValueError for a name that another module has registered.
    """
    first = _registered.setdefault(kind.__name__, kind)
    if first.__module__ != kind.__module__:
        raise ValueError(f"{first.__module__} and {kind.__module__} both register database '{kind.__name__}'")
    _registered[kind.__name__] = kind
    return kind


@cache
def kinds() -> tuple[type[Database], ...]:
    """Import every file of the package; return the kinds that they registered, by precedence and name."""
    package = importlib.import_module("readers")
    for module in pkgutil.iter_modules(package.__path__, "readers."):
        importlib.import_module(module.name)
    return tuple(sorted(_registered.values(), key=lambda kind: (kind.precedence, kind.__name__)))


def open_database(source: str | os.PathLike[str]) -> Database:
    """Return a reader of `source`: a folder, a glob or another text that a kind of database accepts.

    Raises SourceError where no kind accepts it, ReaderError for a LevelDB where plyvel is not installed.
    """
    source = os.fspath(source)
    for kind in kinds():
        if kind.opens(source):
            return kind(source)
    raise SourceError(f"{source}: {_why_none(source)}")


def _why_none(source: str) -> str:
    """Return why no kind of database accepts `source`."""
    if os.path.isfile(source):
        return "expected a database's folder, got a file"
    try:
        os.listdir(source)
    except OSError as error:
        where = "" if os.path.isabs(source) else f" (relative to {os.getcwd()})"
        names = " or ".join(kind.name for kind in kinds() if kind.name)
        return f"the {names} can't be opened: {reason(error)}{where}"
    marks = " or ".join(kind.mark for kind in kinds() if kind.mark)
    return f"expected a folder with {marks}, got one without"
