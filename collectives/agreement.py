"""Agreement: check that all ranks are about to do the same thing, and that none has an error."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from itertools import zip_longest
from math import inf
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from collectives.abort import abort, write
from collectives.errors import CollectiveError, DisagreementError

if TYPE_CHECKING:
    from mpi4py import MPI

PATIENCE = 10.0  # seconds for which a rank with an error waits for others, which may be in the collective already
POLL = 1e-3  # seconds
ASK = 1.0  # seconds after which a rank asks others where they are
LONG = 60.0  # seconds after which a rank says that it waits for others in a call that is new to it


def agree(comm: MPI.Intracomm, values: Mapping[str, str]) -> None:
    """Raise DisagreementError on every rank unless all ranks have the same `values`.

    Collective over `comm`. It costs one allreduce of 16 bytes where all ranks agree. Where they differ, the values are
    gathered; the error names the first key that differs, rank 0's value and that of another rank. Of a value of several
    lines it gives the first line that differs.
    """
    from mpi4py import MPI

    word = digest(values)
    extremes = np.array([word, -word], np.int64)
    comm.Allreduce(MPI.IN_PLACE, extremes, MPI.MAX)
    if extremes[0] != -extremes[1]:
        raise_difference(comm, values)


def digest(values: Mapping[str, str]) -> int:
    """Return a number of 56 bits that stands for the values."""
    text = "\0".join(f"{key}\0{value}" for key, value in sorted(values.items()))
    return int.from_bytes(hashlib.sha256(text.encode(errors="surrogateescape")).digest()[:7], "big")


def raise_difference(comm: MPI.Intracomm, values: Mapping[str, str]) -> NoReturn:
    """Raise DisagreementError on all ranks, which have different values. Collective."""
    raise DisagreementError(_difference(comm.allgather(dict(values))))


def share(
    comm: MPI.Intracomm,
    error: CollectiveError | None,
    holds: bool = True,
    entered: int = 0,
    may_run: str = "",
    values: Mapping[str, str] | None = None,
    reach: Callable[[], bool] | None = None,
) -> bool:
    """Return whether something `holds` on all ranks; raise, on all, the error of the first rank that has one.

    Collective over `comm`; it costs one allreduce of 48 bytes where there is no error.

    - `entered`: how many calls this rank has entered, by which the ranks know that they are in the same one.
    - `may_run`: the call, if other ranks may be running it already, which then never come here by themselves. A rank
      that has an error waits PATIENCE seconds for them, and ends the job; one that has none says after LONG seconds
      that it waits.
    - `reach`: brings them here, called again and again after ASK seconds; False says that it can't, and ends the job.
    - `values`: what all ranks must have the same of, as in `agree`, which is looked at where no rank has an error.
    """
    from mpi4py import MPI

    if comm.size == 1 and error is not None:
        raise error
    word = digest(values or {})
    found = np.array([error is not None, not holds, entered, -entered, word, -word], np.int64)
    request = comm.Iallreduce(MPI.IN_PLACE, found, MPI.MAX)
    if may_run:
        _wait_for_others(comm, request, error, may_run, reach)
    request.Wait()
    if found[0]:
        _raise_first(comm, error, may_run, bool(found[2] == -found[3]))
    if found[4] != -found[5]:
        raise_difference(comm, values or {})
    return not found[1]


def _wait_for_others(
    comm: MPI.Intracomm,
    request: MPI.Request,
    error: CollectiveError | None,
    call: str,
    reach: Callable[[], bool] | None,
) -> None:
    """Wait for others that may be in a known call, as `share` says."""

    def bring() -> None:
        if reach is not None and not reach():
            end_job(comm, f"rank {comm.rank}: {call}: {error or 'the call is new to this rank'}")

    patience = LONG if error is None else PATIENCE
    if _is_complete(request, patience, bring):
        return
    if error is not None:
        end_job(comm, f"rank {comm.rank}: {call}: {error}")
    _tell_of_waiting(comm, call)
    _is_complete(request, inf, bring)


def _is_complete(request: MPI.Request, patience: float, meanwhile: Callable[[], None]) -> bool:
    """Return whether a request is complete within `patience` seconds; call `meanwhile` after ASK seconds."""
    began = time.monotonic()
    while not request.Test():
        waited = time.monotonic() - began
        if waited > patience:
            return False
        if waited > ASK:
            meanwhile()
        if waited > POLL:  # at first as soon as can be: most ranks come together
            time.sleep(POLL)
    return True


def _tell_of_waiting(comm: MPI.Intracomm, call: str) -> None:
    """Say in one line that this rank waits for others, which may be late, or in another call for ever."""
    write(
        f"collectives: rank {comm.rank} has waited {LONG:g} s for other ranks to agree on {call}, which is new to it: "
        "they are late, or in a call that they have made before, which differs in operation, type, length or root\n"
    )


def _raise_first(comm: MPI.Intracomm, error: CollectiveError | None, call: str, in_step: bool) -> NoReturn:
    """Raise the error of the first rank that has one, on all ranks; end the job where they are in different calls."""
    errors = comm.allgather(error)
    rank, first = next((rank, one) for rank, one in enumerate(errors) if one is not None)
    if not in_step:
        if comm.rank == rank:
            end_job(comm, f"rank {rank}: {call}: {first}")
        comm.Barrier()  # which the end of the job ends
    where = "" if {str(one) for one in errors} == {str(first)} else f"rank {rank}: "
    raise type(first)(f"{where}{first}")


def end_job(comm: MPI.Intracomm, problem: str) -> NoReturn:
    """Print `problem` as one line and abort the job: other ranks wait in a collective and can't receive an error."""
    abort(comm, 2, f"collectives: {problem}; other ranks are in the same collective already, so the job ends\n")
    raise AssertionError("MPI_Abort returned")


def _difference(gathered: list[dict[str, str]]) -> str:
    """Describe the first value that differs from rank 0's, and the rank that has it."""
    first = gathered[0]
    for rank, other in enumerate(gathered):
        for key in dict.fromkeys([*first, *other]):
            if first.get(key) != other.get(key):
                ours, theirs = _first_lines_apart(first.get(key, "(none)"), other.get(key, "(none)"))
                return f"the ranks differ in {key}: rank 0 has '{ours}', rank {rank} has '{theirs}'"
    return "the ranks differ"


def _first_lines_apart(ours: str, theirs: str) -> tuple[str, str]:
    """Return the first two lines that differ."""
    pairs = zip_longest(ours.splitlines(), theirs.splitlines(), fillvalue="(nothing)")
    return next((pair for pair in pairs if pair[0] != pair[1]), (ours, theirs))
