"""pycaffe's counts of solvers: under mpirun those of the ranks, else what the program sets."""

from __future__ import annotations

import operator
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

    Under mpirun that is the number of ranks: raise ScaffeError for another. Raise it below 1, too.
    """
    _set.count = _checked("set_solver_count", count, 1, solver_count())


def set_solver_rank(rank: int) -> None:
    """Set the number of this process among those that train together.

    Under mpirun that is the rank: raise ScaffeError for another. Raise it below 0, too.
    """
    _set.rank = _checked("set_solver_rank", rank, 0, solver_rank())


def set_multiprocess(multiprocess: bool) -> None:
    """Say that the program starts a process for each solver; scaffe has no other way, so that this changes nothing."""
    _set.multiprocess = bool(multiprocess)


def _checked(function: str, given: int, least: int, launched: int) -> int:
    """Return the number that a function was given. Raise ScaffeError where it can't be."""
    number = operator.index(given)
    if number < least:
        raise ScaffeError(f"{function} takes a number of {least} or more, got {number}")
    if launcher_size() > 1 and number != launched:
        raise ScaffeError(
            f"{function}({number}) on rank {launcher_rank()} of {launcher_size()}: under mpirun it is {launched}; "
            "start the program without mpirun, or leave the call out"
        )
    return number


def has_nccl() -> bool:
    """Return True: ranks sum gradients by scaffe's collectives, with or without NVIDIA's NCCL."""
    return True
