"""Settings: how a run's data layers read, as flags name it."""

from __future__ import annotations

from dataclasses import dataclass

from readers.errors import ReaderError
from readers.shuffle import block_size
from readers.threads import check_threads

READERS = ("parallel", "single")
BAD_RECORDS = ("fail", "skip")


@dataclass(frozen=True)
class Settings:
    """Who reads, how far ahead, in which order, and what becomes of bad records.

    `threads` read for each layer (0: as many as computing leaves cores for), `prefetch` batches ahead (0: as the layer
    says). `shuffle`, of training records, is "none", "full" or "block:N" (see shuffle.py); "" leaves it to the
    layer. Of `bad_records`, "skip" replaces up to `max_bad_records` (a fraction) of what was read. `readers` is one of
    READERS. Raise ReaderError for anything else.
    """

    readers: str = "parallel"
    threads: int = 0
    prefetch: int = 0
    shuffle: str = ""
    bad_records: str = "fail"
    max_bad_records: float = 0.01

    def __post_init__(self) -> None:
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
