"""Loss of a rank: how it shows, and how a communicator is given up afterwards.

Where MPI tolerates faults (ULFM: Open MPI's `mpirun --with-ft ulfm`), a lost process shows as an error of an MPI call.
Ranks that wait for others than the lost one notice nothing until a rank revokes their communicator:

    except RankLostError:
        comm.revoke()                 # not collective: ends the other ranks' waits with the same error
        rest = MPI.COMM_WORLD.Shrink()
        comm.abandon()                # after Shrink: until then other ranks may still write to this one's arrays
        comm = Communicator(rest)
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from collectives.errors import RankLostError

TORN = pickle.UnpicklingError, EOFError  # Open MPI 5 may deliver a part of an object
CLASSES = "ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED"
P = ParamSpec("P")
Result = TypeVar("Result")


def is_loss(error: BaseException | None, comm: Any = None) -> bool:
    """Return whether an error, of a communicator, says that a rank was lost, or that another one has revoked."""
    if isinstance(error, RankLostError):
        return True
    if isinstance(error, TORN):
        return _has_lost_any()
    from mpi4py import MPI

    classes = [getattr(MPI, name) for name in CLASSES if hasattr(MPI, name)]  # mpi4py 3 has none
    if not isinstance(error, MPI.Exception):
        return False
    found = error.Get_error_class()
    return found in classes or (found == MPI.ERR_OTHER and (_has_lost_any() or _is_revoked(comm)))


def _has_lost_any() -> bool:
    """Return whether MPI knows of a lost rank. Open MPI 5's broadcasts report one as ERR_OTHER."""
    from mpi4py import MPI

    try:
        return bool(MPI.COMM_WORLD.Get_failed().Get_size())
    except (AttributeError, NotImplementedError, MPI.Exception):  # mpi4py 3, or an MPI without fault tolerance
        return False


def _is_revoked(comm: Any) -> bool:
    """Return whether a communicator is revoked. Open MPI 5's own non-blocking collectives report that as ERR_OTHER."""
    from mpi4py import MPI

    try:
        return bool(comm.Is_revoked())
    except (AttributeError, NotImplementedError, MPI.Exception):  # no communicator, mpi4py 3, no fault tolerance
        return False


def as_rank_lost(error: Exception, comm: Any = None) -> Exception:
    """Return the RankLostError that an error of a communicator means, or the error itself if it means no loss."""
    if not is_loss(error, comm) or isinstance(error, RankLostError):
        return error
    return RankLostError(f"a rank was lost: {error}")


def raises_rank_lost(method: Callable[P, Result]) -> Callable[P, Result]:
    """Make a method raise RankLostError where MPI reports a lost rank, or that the object's `comm` is revoked."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> Result:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            raise as_rank_lost(error, getattr(args[0], "comm", None))  # noqa: B904  the same error, or what it means

    return call


@contextlib.contextmanager
def ignoring_loss() -> Iterator[None]:
    """Suppress errors that say that a rank was lost."""
    try:
        yield
    except Exception as error:
        if not is_loss(error):
            raise
