"""Reading: how a run's data layers read."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any

from readers.errors import ReaderError
from readers.shuffle import block_size
from readers.threads import check_threads

READERS = ("parallel", "single")
BAD_RECORDS = ("fail", "skip")
KINDS: dict[type, tuple[type, str]] = {
    str: (str, "a string"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
}  # of a field: what a value may be, and its name


def _setting(default: Any, help: str, **about: Any) -> Any:
    """Return a field; what a command line needs of it, its help, values and flag, is its metadata."""
    return field(default=default, metadata={"help": help, **about})


@dataclass(frozen=True)
class Reading:
    """Which ranks read, how many batches ahead, in which order, and what happens to bad records.

    `readers` is one of READERS: every rank reads its share, or the root reads for all. `threads` read for each layer
    (0: the cores that computing leaves), `prefetch` batches ahead (0: as the layer gives). `shuffle`, of training
    records, is "none", "full" or "block:N" (see shuffle.py); "" leaves it to the layer. `bad_records` "skip" replaces
    up to `max_bad_records`, a fraction, of the records read. Raise ReaderError for other values.
    """

    readers: str = _setting("parallel", "every rank reads, or the root for all", choices=READERS)
    threads: int = _setting(0, "of each data layer; 0: the free cores", metavar="N", flag="reader-threads")
    prefetch: int = _setting(0, "batches read ahead; 0: as the layer says", metavar="N", rare=True)
    shuffle: str = _setting("", "order of training, in place of the layer's", metavar="none|full|block:N")
    bad_records: str = _setting("fail", "end at a damaged record, or replace it", choices=BAD_RECORDS)
    max_bad_records: float = _setting(0.01, "largest fraction of records to skip", metavar="F", rare=True)

    def __post_init__(self) -> None:
        for one in fields(Reading):
            _check_kind(one.name, getattr(self, one.name), type(one.default))
        for name, values in (("readers", READERS), ("bad_records", BAD_RECORDS)):
            if getattr(self, name) not in values:
                raise ReaderError(f"unknown {name} '{getattr(self, name)}'; known: {' '.join(values)}")
        check_threads("reader threads", self.threads)
        if self.prefetch < 0:
            raise ReaderError(f"prefetch must be 0 or more, got {self.prefetch}")
        if self.shuffle:
            block_size(self.shuffle)
        if not 0 <= self.max_bad_records <= 1:
            raise ReaderError(f"max_bad_records is a fraction, 0 to 1; got {self.max_bad_records:g}")


def _check_kind(name: str, given: object, kind: type) -> None:
    allowed, noun = KINDS[kind]
    if not isinstance(given, allowed) or isinstance(given, bool):
        raise ReaderError(f"{name} must be {noun}, got {given!r}")


Settings = Reading  # its earlier name
