"""Agreement: check that all ranks are about to do the same thing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from collectives.abort import abort
from collectives.errors import DisagreementError

if TYPE_CHECKING:
    from mpi4py import MPI


def agree(comm: MPI.Intracomm, values: Mapping[str, str]) -> None:
    """Raise DisagreementError on every rank unless all ranks have the same `values`.

    Collective over `comm`. It costs one allreduce of 16 bytes where all ranks agree. Where they differ, the values are
    gathered; the error names the first key that differs, rank 0's value and that of another rank. Of a value of several
    lines it gives the first line that differs.
    """
    from mpi4py import MPI

    text = "\0".join(f"{key}\0{value}" for key, value in sorted(values.items()))
    word = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
    extremes = np.array([word, -word], np.int64)
    comm.Allreduce(MPI.IN_PLACE, extremes, MPI.MAX)
    if extremes[0] != -extremes[1]:
        raise DisagreementError(_difference(comm.allgather(dict(values))))


def end_job(comm: MPI.Intracomm, problem: str) -> NoReturn:
    """Print `problem` as one line and abort the job: other ranks wait in a collective and can't receive an error."""
    abort(comm, 2, f"collectives: {problem}; other ranks are in the same collective already, so the job ends\n")
    raise AssertionError("MPI_Abort returned")


def _difference(gathered: list[dict[str, str]]) -> str:
    """Describe the first value that differs from rank 0's, and the rank that has it."""
    first = gathered[0]
    for rank, other in enumerate(gathered):
        for key in sorted(first.keys() | other.keys()):
            if first.get(key) != other.get(key):
                ours, theirs = _first_lines_apart(first.get(key, "(none)"), other.get(key, "(none)"))
                return f"the ranks differ in {key}: rank 0 has '{ours}', rank {rank} has '{theirs}'"
    return "the ranks differ"


def _first_lines_apart(ours: str, theirs: str) -> tuple[str, str]:
    """Return the first two lines that differ."""
    pairs = zip_longest(ours.splitlines(), theirs.splitlines(), fillvalue="(nothing)")
    return next((pair for pair in pairs if pair[0] != pair[1]), (ours, theirs))
