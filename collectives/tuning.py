"""Tuning: which algorithm and chunk for an operation, a number of bytes, a shape of the job and a kind of memory."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from functools import cache
from math import log2
from pathlib import Path
from typing import NamedTuple

from collectives.errors import ArgumentError

SHIPPED = Path(__file__).parent / "tables" / "shipped.json"


class Shape(NamedTuple):
    """How many nodes a job has, and ranks on each; 0 where their numbers differ."""

    nodes: int
    ranks: int

    def __str__(self) -> str:
        return f"{self.nodes} node(s) with {self.ranks or 'unequal numbers of'} rank(s) each"


class Choice(NamedTuple):
    """What to do, and why; 0 bytes leave the chunk to the executor."""

    algorithm: str
    chunk_bytes: int = 0
    why: str = ""


@dataclass(frozen=True)
class Row:
    """From `from_bytes` on, in windows or in other memory, on such a shape, an operation is best done so."""

    op: str
    nodes: int
    ranks: int
    shared: bool
    from_bytes: int
    algorithm: str
    chunk_bytes: int = 0


class Table:
    """Rows, of which the one counts whose shape is nearest, and then the last whose bytes are reached."""

    def __init__(self, rows: list[Row], source: str):
        self.rows, self.source = rows, source

    def choose(self, op: str, shape: Shape, shared: bool, nbytes: int) -> Choice:
        """Return the choice for so many bytes; the MPI library's own collective where no row fits."""
        known = [row for row in self.rows if (row.op, row.shared) == (op, shared)]
        known = [row for row in known if (row.nodes > 1) == (shape.nodes > 1) and (row.ranks > 1) == (shape.ranks > 1)]
        if not known:
            return Choice("mpi", why=f"{self.source} has no row for {shape}")
        nearest = min(known, key=lambda row: _distance(row, shape))
        rows = [row for row in known if (row.nodes, row.ranks) == (nearest.nodes, nearest.ranks)]
        rows = sorted((row for row in rows if row.from_bytes <= nbytes), key=lambda row: row.from_bytes)
        if not rows:
            return Choice("mpi", why=f"{self.source} has no row for so few bytes")
        row = rows[-1]
        why = f"best from {row.from_bytes} bytes on {Shape(row.nodes, row.ranks)} in {self.source}"
        return Choice(row.algorithm, row.chunk_bytes, why)

    def save(self, path: str | os.PathLike) -> None:
        """Write the table."""
        Path(path).write_text(json.dumps([asdict(row) for row in self.rows], indent=1) + "\n")


def load(path: str | os.PathLike) -> Table:
    """Read a table. Raise ArgumentError for a file that is none."""
    try:
        return Table([Row(**row) for row in json.loads(Path(path).read_text())], os.fspath(path))
    except OSError as error:
        raise ArgumentError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, TypeError) as error:
        raise ArgumentError(f"{path} is no table of python -m collectives.tune: {error}") from None


@cache
def shipped() -> Table:
    """Return the table that COLLECTIVES_TABLE names, or the one that comes with the package."""
    named = os.environ.get("COLLECTIVES_TABLE")
    return load(named) if named else Table(load(SHIPPED).rows, "the shipped table")


def _distance(row: Row, shape: Shape) -> float:
    pairs = (row.nodes, shape.nodes), (row.ranks, shape.ranks)
    return sum(abs(log2(max(a, 1) / max(b, 1))) for a, b in pairs)
