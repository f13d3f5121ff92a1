"""Derived: MPI's derived data types, as -D of the OSU microbenchmarks gives them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

FORMS = "cont, vect:STRIDE:BLOCK or indx:FILE"


class Derived(NamedTuple):
    """The elements of a message that travel: all, blocks at a stride, or `parts`, each a displacement and a length."""

    kind: str
    stride: int = 1
    block: int = 1
    parts: tuple[tuple[int, int], ...] = ()

    def blocks(self, count: int) -> list[tuple[int, int]]:
        """Return the displacement and the length of each block of a message of `count` elements."""
        if self.kind == "indx":
            return [(start, length) for start, length in self.parts if start + length <= count]
        return [(self.stride * k, self.block) for k in range(count // self.stride)]

    def places(self, count: int) -> np.ndarray:
        """Return which of `count` elements travel."""
        found = np.zeros(count, bool)
        for start, length in self.blocks(count):
            found[start : start + length] = True
        return found

    def datatype(self, base: MPI.Datatype, count: int) -> MPI.Datatype:
        """Return the committed data type of a message of `count` elements."""
        if self.kind == "cont":
            return base.Create_contiguous(count).Commit()
        if self.kind == "vect":
            block, stride = min(self.block, count), min(self.stride, count)  # as MPI counts
            return base.Create_vector(count // self.stride, block, stride).Commit()
        starts, lengths = zip(*self.blocks(count), strict=True) if self.blocks(count) else ((), ())
        return base.Create_indexed(lengths, starts).Commit()


def read_derived(text: str) -> Derived:
    """Return a type from its text. Raise ValueError for another text, and for a file that has no types."""
    if text == "cont":
        return Derived(text)
    if match := re.fullmatch(r"vect:([1-9]\d*):([1-9]\d*)", text):
        stride, block = map(int, match.groups())
        if block <= stride:
            return Derived("vect", stride, block)
    kind, _, path = text.partition(":")
    if kind != "indx" or not path:
        raise ValueError(f"expected {FORMS}, BLOCK at most STRIDE, got '{text}'")
    return Derived(kind, parts=_parts(Path(path)))


def _parts(path: Path) -> tuple[tuple[int, int], ...]:
    """Return the parts in a file, a line "displacement, length" for each; # begins a comment."""
    try:
        lines = [line.partition("#")[0].strip() for line in path.read_text().splitlines()]
        parts = [tuple(map(int, line.split(","))) for line in lines if line]
    except OSError as error:
        raise ValueError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except ValueError:
        parts = []
    end = 0
    for part in parts or [()]:
        if len(part) != 2 or part[0] < end or part[1] < 1:
            raise ValueError(f"{path}: expected lines of a displacement, a comma and a length, ascending and apart")
        end = sum(part)
    return tuple((start, length) for start, length in parts)
