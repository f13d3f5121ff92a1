"""Peer memory: read and write the memory of another process on the node in one copy, without its help.

It uses Linux's process_vm_readv and process_vm_writev, as MPI libraries do ("cross memory attach"). They work between
processes of one user unless a container or a kernel setting forbids them; `works` finds out.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from collectives.errors import RankLostError

if TYPE_CHECKING:
    from mpi4py import MPI

PR_SET_PTRACER, PR_SET_PTRACER_ANY = 0x59616D61, ctypes.c_ulong(-1)

SystemCall = Callable[..., int]


class _Extent(ctypes.Structure):
    """The system's struct iovec."""

    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class RemoteAddress(NamedTuple):
    """An address in a process."""

    pid: int
    address: int


def address(array: Any) -> int:
    """Return the address of the first element of a NumPy or device array."""
    if isinstance(array, np.ndarray):
        from mpi4py import MPI

        return MPI.Get_address(array)  # ten times as fast as asking NumPy
    return int(array.__cuda_array_interface__["data"][0])


def read(source: RemoteAddress, target: np.ndarray) -> None:
    """Fill a contiguous array from another process's memory. Raise OSError where the system forbids it."""
    _move(_function("readv"), source, target)


def write(source: np.ndarray, target: RemoteAddress) -> None:
    """Write a contiguous array into another process's memory. Raise OSError where the system forbids it."""
    _move(_function("writev"), target, source)


def _move(call: SystemCall, there: RemoteAddress, array: np.ndarray) -> None:
    """Copy between an array and another process. Raise OSError where it fails, RankLostError where that has ended."""
    done, nbytes, here = 0, array.nbytes, address(array)
    while done < nbytes:  # the system moves at most 2 GiB at once
        ours, theirs = _Extent(here + done, nbytes - done), _Extent(there.address + done, nbytes - done)
        moved = call(there.pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
        if moved <= 0:
            code = ctypes.get_errno()
            if code == errno.ESRCH:
                raise RankLostError(f"a rank was lost: process {there.pid} of this node has ended")
            raise OSError(code, f"process {there.pid}: {os.strerror(code)}")
        done += moved


def works(comm: MPI.Intracomm) -> bool:
    """Return whether all ranks of a node can read each other's memory. Collective."""
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0)  # otherwise Yama may allow parents only
    mine, found = np.array([comm.rank]), np.empty(1, np.int64)
    places = comm.allgather(RemoteAddress(os.getpid(), address(mine)))
    neighbour = (comm.rank + 1) % comm.size
    try:
        read(places[neighbour], found)
        fine = found[0] == neighbour
    except (OSError, AttributeError):
        fine = False
    return all(comm.allgather(bool(fine)))


def _function(name: str) -> SystemCall:
    """Return the system call, loaded at its first use."""
    if not _functions:
        libc = ctypes.CDLL(None, use_errno=True)
        for each in ("readv", "writev"):
            function = getattr(libc, f"process_vm_{each}")
            extent = ctypes.POINTER(_Extent)
            function.argtypes = [ctypes.c_int, extent, ctypes.c_ulong, extent, ctypes.c_ulong, ctypes.c_ulong]
            function.restype = ctypes.c_ssize_t
            _functions[each] = function
    return _functions[name]


_functions: dict[str, SystemCall] = {}
