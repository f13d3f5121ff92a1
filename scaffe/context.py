"""What a net's layers know of the run they are part of, handed to each by argument."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from types import ModuleType
from typing import NoReturn
from zlib import crc32

import numpy as np

from readers import Batch, Reading, share
from scaffe.blobs.shared_forms import SharedForms
from scaffe.compute import DEFAULT, Compute
from scaffe.devices.choices import Choices
from scaffe.engine import Engine
from scaffe.errors import SplitError

TRAIN, TEST = 0, 1
PHILOX_STEP = 8  # float32 numbers that one step of Philox's counter gives: 4 words of 64 bits


class Earlier:
    """An attribute of an earlier version: reading it raises AttributeError, which names the present one."""

    def __init__(self, now: str):
        self.now = now

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        raise AttributeError(f"context.{self.name} has moved: write context.{self.now}")


@dataclass
class Context:
    """Phase, engine, seed, and this rank's share of the global batch.

    Where ranks have several instances, `rank` and `size` number and count all instances of all ranks, and `sharers`
    names them in errors.

    With `scaling="strong"` the batch of the prototxt is divided over the ranks; with "weak" each rank takes
    it whole, so that the global batch is `size` times as large. `local_rows`, `total_rows` and `first_row`
    say which rows of the global batch are here; None until a data layer has said how large the batch is.
    """

    phase: int = TRAIN
    seed: int = 0
    rank: int = 0
    size: int = 1
    scaling: str = "strong"
    allsums: Callable[[Sequence[float]], Sequence[float] | np.ndarray] = list  # over the ranks; all call it
    handed: Collection[str] = ()  # layers whose parameters get their values once the net is built: no filler runs
    batch_numbers: Callable[[], Iterator[int]] = count  # of the global batches that data layers here read
    compute: Compute = DEFAULT  # the settings of the engine
    engine: Engine = field(default_factory=Engine)  # that computes the layers; a net gives its context one
    choices: Choices = field(default_factory=Choices)  # of the engine's kernels
    forms: SharedForms | None = None  # of parameters, with the nets that share them; None: each pass makes them
    batch_number: int = 0  # global batches consumed before this pass: what random layers are keyed by
    file_mark: str = ""  # what this rank puts into the names of files that layers write, "" where it is alone
    reading: Reading = Reading()  # how data layers read
    scatter: Callable[[Batch | None, Batch], None] | None = None  # of the root's batch, if it reads for all
    sharers: str = ""  # those who divide a batch, as "2 ranks x 3 instances"; "" for `size` ranks
    spare_cores: int = 1  # of this rank: those that computing leaves, or 1
    local_rows: int | None = None
    total_rows: int | None = None
    first_row: int = 0
    batches: set[int] = field(default_factory=set)  # of the data layers, in rows; one rank alone can have several
    _batch: tuple[str, int] | None = None

    gpu = Earlier("engine.gpu")
    threads = Earlier("compute.threads")
    deterministic = Earlier("compute.deterministic")
    workspace_bytes = Earlier("compute.workspace_bytes")
    graphs = Earlier("compute.graphs")
    allow_python_layers = Earlier("compute.allow_python_layers")

    @property
    def xp(self) -> ModuleType:
        """The library of the arrays that the layers compute with: numpy, or one with its functions."""
        return self.engine.xp

    def take_share(self, layer: str, batch: int) -> int:
        """Return how many of a data layer's `batch` rows this rank computes. Raise SplitError if it has none."""
        self.batches.add(batch)
        if self._batch is None or self.size == 1:
            self._batch = (layer, batch)
        elif self._batch[1] != batch:
            raise SplitError(
                f"layer '{layer}' has a batch of {batch} and layer '{self._batch[0]}' one of {self._batch[1]}: "
                f"over {self.divisors} all data layers need the same batch"
            )
        if self.scaling == "weak":
            self.first_row, self.total_rows = self.rank * batch, self.size * batch
            self.local_rows = batch
            return batch
        if batch < self.size:
            raise SplitError(
                f"layer '{layer}': {self.divisors} for a batch of {batch} samples; "
                f"{self._fewer(batch)}, or give each the whole batch with --scal weak"
            )
        self.first_row, stop = share(batch, self.rank, self.size)
        self.local_rows, self.total_rows = stop - self.first_row, batch
        return self.local_rows

    @property
    def divisors(self) -> str:
        """Who divides a batch, for errors: "4 ranks", or "2 ranks x 3 instances"."""
        return self.sharers or f"{self.size} ranks"

    def _fewer(self, batch: int) -> str:
        return f"ask for at most {batch} in all" if "instances" in self.sharers else f"start at most {batch} ranks"

    def allsum(self, value: float) -> float:
        """Return the sum of a number over the ranks, all of which call this."""
        return float(self.allsums([value])[0])

    @property
    def reader_threads(self) -> int:
        """How many threads read for each data layer."""
        return self.reading.threads or self.spare_cores

    def total(self, count: int) -> int:
        """Scale a count that is proportional to the rows, such as the terms of a loss, to the global batch."""
        if not self.local_rows or not self.total_rows:
            return count
        return count * self.total_rows // self.local_rows

    @property
    def share(self) -> float:
        """The part of the global batch that this rank has, as a fraction."""
        return self.local_rows / self.total_rows if self.local_rows and self.total_rows else 1 / self.size

    def generator(self, *key: str | int) -> np.random.Generator:
        """Return a random generator that depends on the seed and `key` alone, not on rank or history."""
        return np.random.Generator(np.random.Philox(key=self.philox_key(*key)))

    def philox_key(self, *key: str | int) -> list[int]:
        """Return the two words of 64 bits that key such a generator."""
        return [self.seed % 2**64, crc32("/".join(map(str, key)).encode())]

    def rows_uniform(self, key: tuple[str | int, ...], rows: int, per_row: int) -> np.ndarray:
        """Return uniform float32 numbers in [0, 1), (rows x per_row), for this rank's rows of the global batch.

        The numbers of a row depend on the seed, `key` and the row's place in the global batch alone: each row
        starts on a step of Philox's counter, which the ranks further on skip to.
        """
        steps = -(-per_row // PHILOX_STEP)
        rng = self.generator(*key)
        rng.bit_generator.advance(self.first_row * steps)  # type: ignore[attr-defined]
        return rng.random((rows, steps * PHILOX_STEP), np.float32)[:, :per_row]
