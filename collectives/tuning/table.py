"""Tables: the algorithm and the chunk for a collective, a number of bytes, a shape of the job and a kind of memory.

`python -m collectives.tune` writes them: it measures a machine or asks the model.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from math import log2
from pathlib import Path
from typing import NamedTuple

from collectives.errors import ArgumentError
from collectives.schedules.algorithms import Choice
from collectives.verbs import SCHEDULED

SHIPPED = Path(__file__).parent / "tables" / "shipped.json"
DEVICES = Path("/sys/class/infiniband")
TCP, FABRIC = "tcp", "fabric"
HOST = "host"  # memory
TREES, EXCHANGES = ("binomial", "chain"), ("halving", "ring")  # for short and for long messages
LARGE = 1 << 18  # bytes from which on the second of these replaces what the MPI library can't do
DEVICE = "is a device or a pipe; name a file"


class Shape(NamedTuple):
    """The number of nodes of a job, the ranks on each (0 where these differ), and the network between nodes."""

    nodes: int
    ranks: int
    network: str = ""  # TCP, FABRIC, or "" on one node

    def __str__(self) -> str:
        joined = f", joined by {self.network}" if self.network else ""
        return f"{self.nodes} node(s) with {self.ranks or 'unequal numbers of'} rank(s) each{joined}"


@dataclass(frozen=True)
class Row:
    """From `from_bytes` bytes on, the best algorithm for a collective, a shape and a kind of memory.

    `memory`: "host", "device" where MPI takes device pointers, "device through host" where it takes copies. `shared`:
    host arrays in windows; device arrays always are. No `network` means any. `seconds`, `library_seconds` and
    `next_seconds` are the times at `from_bytes` of this algorithm, the MPI library and the next best, 0 where unknown;
    `source` says where they are from.
    """

    op: str
    nodes: int
    ranks: int
    shared: bool
    from_bytes: int
    algorithm: str
    chunk_bytes: int = 0
    network: str = ""
    seconds: float = 0.0
    library_seconds: float = 0.0
    next_best: str = ""
    next_seconds: float = 0.0
    source: str = ""
    memory: str = HOST

    @property
    def place(self) -> tuple[str, int, int, bool, str, str]:
        """Return what the row is for, without the bytes."""
        return self.op, self.nodes, self.ranks, self.shared, self.network, self.memory

    def why(self, table: str) -> str:
        """Return in words the place of the row, and what it rests on."""
        where = f"best from {self.from_bytes} bytes on {Shape(self.nodes, self.ranks, self.network)} in {table}"
        if not self.source:
            return where
        found = f"{1e6 * self.seconds:.1f} us" if self.seconds else ""
        if self.seconds and self.library_seconds and self.algorithm != "mpi":
            found += f", {self.seconds / self.library_seconds:.2f} of the MPI library's"
        if self.seconds and self.next_best:
            found += f"; next {self.next_best}, {self.next_seconds / self.seconds:.2f} times as long"
        return f"{where}; {self.source}" + (f": there {found}" if found else "")


class Table:
    """Rows. The nearest shape's rows count, and of them the last whose bytes are reached. `source` names the table."""

    def __init__(self, rows: Sequence[Row], source: str):
        self.rows, self.source = list(rows), source

    def choose(self, op: str, shape: Shape, shared: bool, nbytes: int, memory: str = HOST) -> Choice:
        """Return the choice for `nbytes` bytes; the MPI library's own collective where no row fits.

        Where no row is for a device's memory, it is "auto": what suits the devices.
        """
        nearest = self._nearest(op, shape, shared, memory)
        if not nearest and memory != HOST:
            return Choice("auto", why=f"{self.source} has no row for {memory} on {shape}")
        if not nearest:
            return Choice("mpi", why=f"{self.source} has no row for {shape}")
        rows = [row for row in nearest if row.from_bytes <= nbytes]
        if not rows:
            return Choice("mpi", why=f"{self.source} has no row for so few bytes")
        row = max(rows, key=lambda row: row.from_bytes)
        return Choice(row.algorithm, row.chunk_bytes, row.why(self.source))

    def line(self, op: str, shape: Shape, shared: bool, memory: str = HOST) -> tuple[float, float] | None:
        """Return the seconds per message and per byte in the nearest shape's rows, or None.

        At least two rows must have times; those of the shortest and of the longest message count.
        """
        timed = [row for row in self._nearest(op, shape, shared, memory) if row.seconds]
        if len(timed) < 2:
            return None
        first, *_, last = sorted(timed, key=lambda row: row.from_bytes)
        beta = (last.seconds - first.seconds) / (last.from_bytes - first.from_bytes)
        return (max(0.0, first.seconds - beta * first.from_bytes), beta) if beta > 0 else None

    def _nearest(self, op: str, shape: Shape, shared: bool, memory: str = HOST) -> list[Row]:
        """Return the rows of the most similar shape."""
        known = [row for row in self.rows if (row.op, row.shared, row.memory) == (op, shared, memory)]
        known = [row for row in known if (row.nodes > 1) == (shape.nodes > 1) and (row.ranks > 1) == (shape.ranks > 1)]
        known = [row for row in known if row.network in ("", shape.network)]
        nearest = min(known, key=lambda row: _distance(row, shape), default=None)
        return [row for row in known if nearest is not None and row.place == nearest.place]

    def merged(self, rows: Sequence[Row]) -> Table:
        """Return the table with `rows` in place of all its rows for the same collective, shape and memory."""
        places = {row.place for row in rows}
        return Table([row for row in self.rows if row.place not in places] + list(rows), self.source)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table, whole or not at all. Raise ArgumentError where that fails."""
        _check_plain(path)
        text = ",\n".join(" " + json.dumps(_brief(row)) for row in self.rows)
        unfinished = _beside(path)
        try:
            with open(unfinished, "x") as file:  # x: O_EXCL, follows no link
                file.write(f"[\n{text}\n]\n")
            unfinished.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise _unwritable(path, error) from None


def instead(op: str, nbytes: int) -> str:
    """Return the schedule that replaces the MPI library's own collective where that can't be used."""
    return (TREES if SCHEDULED[op].has_root else EXCHANGES)[nbytes >= LARGE]


def load(path: str | os.PathLike[str]) -> Table:
    """Read a table. Raise ArgumentError for an unreadable file and for one that is not a table."""
    _check_plain(path)
    try:
        return Table([_row(row) for row in json.loads(Path(path).read_text())], os.fspath(path))
    except OSError as error:
        raise ArgumentError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, TypeError) as error:
        raise ArgumentError(f"{path} is not a table of python -m collectives.tune: {error}") from None


def present(path: str | os.PathLike[str]) -> Table:
    """Return the table in a file, one without rows for no file and for an empty one. Raise as `load` does."""
    return load(path) if os.path.exists(path) and os.path.getsize(path) else Table([], os.fspath(path))


def _row(given: dict[str, object]) -> Row:
    """Return a row of a table. Raise TypeError for unknown fields and for wrong types."""
    row = Row(**given)  # type: ignore[arg-type]
    for name, value in asdict(row).items():
        expected = (int, float) if name in TIMES else type(getattr(EXAMPLE, name))
        if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
            raise TypeError(f"{name} can't be {value!r}")
    return row


EXAMPLE = Row("", 0, 0, False, 0, "")
TIMES = ("seconds", "library_seconds", "next_seconds")


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise ArgumentError unless a table can be written, and a present one read."""
    _check_plain(path)
    try:
        unfinished = _beside(path)
        unfinished.touch(exist_ok=False)
        unfinished.unlink()
    except OSError as error:
        raise _unwritable(path, error) from None
    present(path)


def is_device(path: str | os.PathLike[str]) -> bool:
    """Return whether something else than a file or folder is at `path`, or at the end of a link there."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def _check_plain(path: str | os.PathLike[str]) -> None:
    """Raise ArgumentError for a pipe, of which a read waits for ever, and a device, which root would replace."""
    if is_device(path):
        raise ArgumentError(f"{path}: {DEVICE}")


@cache
def shipped() -> Table:
    """Return the table that COLLECTIVES_TABLE names, or the one in the package."""
    named = os.environ.get("COLLECTIVES_TABLE")
    return load(named) if named else Table(load(SHIPPED).rows, "the shipped table")


def network() -> str:
    """Return FABRIC on a machine with an adapter that the kernel lists as InfiniBand (also EFA and RoCE), else TCP."""
    return FABRIC if DEVICES.is_dir() and any(DEVICES.iterdir()) else TCP


def _brief(row: Row) -> dict[str, object]:
    """Return the fields of a row without those at their defaults."""
    values = asdict(row)
    return {f.name: values[f.name] for f in fields(row) if f.name == "chunk_bytes" or values[f.name] != f.default}


def _beside(path: str | os.PathLike[str]) -> Path:
    """Return a new temporary name beside `path`."""
    return Path(f"{os.fspath(path)}.{secrets.token_hex(8)}.tmp")


def _unwritable(path: str | os.PathLike[str], error: OSError) -> ArgumentError:
    """Return the error for a file that can't be written."""
    return ArgumentError(f"{path}: can't be written: {(error.strerror or str(error)).lower()}")


def _distance(row: Row, shape: Shape) -> float:
    """Return how far a row's shape is from `shape`, in powers of two."""
    pairs = (row.nodes, shape.nodes), (row.ranks, shape.ranks)
    return sum(abs(log2(max(a, 1) / max(b, 1))) for a, b in pairs)
