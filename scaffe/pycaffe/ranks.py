"""pycaffe's counts of solvers: under mpirun those of the ranks, else what the program sets."""

from __future__ import annotations

import multiprocessing
import operator
import sys
from dataclasses import dataclass

from scaffe.errors import ScaffeError
from scaffe.parallel.world import launcher_rank, launcher_size


@dataclass
class _Set:
    """What the program has set."""

    count: int = 1
    rank: int = 0
    multiprocess: bool = False


_set = _Set()


def solver_count() -> int:
    """Return how many solvers train together: the ranks that mpirun started, else what set_solver_count set, or 1."""
    size = launcher_size()
    return size if size > 1 else _set.count


def solver_rank() -> int:
    """Return which of these solvers is this process's, from 0: its rank, else what set_solver_rank set, or 0."""
    return launcher_rank() if launcher_size() > 1 else _set.rank


def set_solver_count(count: int) -> None:
    """Set how many processes, which the program starts itself, train together.

    Under mpirun it is 1, so that each rank starts one process, or the number of ranks, so that of each rank's processes
    one is a rank. Raise ScaffeError for another number, and for one below 1.
    """
    number, launched = _checked("set_solver_count", count, 1), launcher_size()
    if number not in (1, launched) and launched > 1:
        raise ScaffeError(
            f"set_solver_count({number}) on rank {launcher_rank()} of {launched}: under mpirun give each rank one "
            f"solver, or name {launched}, one for each rank; or start the program without mpirun"
        )
    _set.count = number


def set_solver_rank(rank: int) -> None:
    """Set the number of this process among those that train together; set_solver_count precedes it.

    Under mpirun, where there are as many solvers as ranks, a process that multiprocessing started ends here, quietly,
    unless its number is its rank: that solver is another rank's. Raise ScaffeError for a number that is no solver's.
    """
    number, launched = _checked("set_solver_rank", rank, 0), launcher_size()
    if launched == 1 or _set.count == 1:
        known = number < _set.count or (launched > 1 and number == launcher_rank())
    else:
        known = number == launcher_rank()
        if not known and number < launched and multiprocessing.parent_process() is not None:
            sys.exit(0)
    if not known:
        raise ScaffeError(
            f"set_solver_rank({number}) of {_set.count} solver(s), on rank {launcher_rank()} of {launched}: call "
            "set_solver_count before it; under mpirun the number is the rank"
        )
    _set.rank = number


def set_multiprocess(multiprocess: bool) -> None:
    """Say that there is a process for each solver: each trains on whole batches, in place of a part of each batch."""
    _set.multiprocess = bool(multiprocess)


def set_by_program() -> tuple[int, int]:
    """Return what set_solver_rank and set_solver_count have set: 0 and 1 without a call."""
    return _set.rank, _set.count


def scaling() -> str:
    """Return how solvers divide batches: "weak" where the program runs a process for each, as Caffe does."""
    return "weak" if _set.multiprocess or _set.count > 1 else "strong"


def _checked(function: str, given: int, least: int) -> int:
    """Return the number that a function was given. Raise ScaffeError below the least."""
    number = operator.index(given)
    if number < least:
        raise ScaffeError(f"{function} takes a number of {least} or more, got {number}")
    return number


def has_nccl() -> bool:
    """Return True: ranks sum gradients by scaffe's collectives, with or without NVIDIA's NCCL."""
    return True
