"""Start: how torch.distributed finds the ranks and the store, and makes process groups, where MPI has started them."""

from __future__ import annotations

import atexit
import importlib
import os
import socket
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import wraps
from typing import Any, cast

import numpy as np
import torch.distributed as dist
from mpi4py import MPI

from collectives.errors import ArgumentError
from collectives.progress import Pause
from collectives.torch import ending
from collectives.torch.messages import monitored_barrier
from collectives.torch.presence import Presence
from collectives.torch.process_group import MpiProcessGroup

NAME = "scaffe"
LOCAL = ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"), ("MPI_LOCALRANKID", "MPI_LOCALNRANKS")
ADDRESS = "MASTER_ADDR", "MASTER_PORT"
TAG = 1 << 14  # of the messages by which MPI makes a group


class StartedRanks:
    """The ranks that PyTorch's are taken from: those that MPI has started, or those that are left."""

    comm: MPI.Intracomm = MPI.COMM_WORLD


def register() -> None:
    """Register the backend, and give the environment what it lacks of what torchrun sets."""
    dist.Backend.register_backend(NAME, make_group, extended_api=True, devices=["cpu", "cuda"])
    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    by_environment = handlers["env"]

    def by_mpi(url: str, timeout: timedelta = dist.default_pg_timeout, **given: Any) -> Iterator[tuple[Any, int, int]]:
        check_ranks(timeout)
        if all(name in os.environ for name in ADDRESS):
            yield from by_environment(url, timeout=timeout, **given)
        else:
            yield meet(timeout)

    handlers["env"] = by_mpi
    take_monitored_barrier()
    if StartedRanks.comm.size > 1:  # else programs that this one starts by mpirun would take it for theirs
        fill_environment()


def take_monitored_barrier() -> None:
    """Let torch.distributed.monitored_barrier, which PyTorch has for gloo alone, take our groups too."""
    of_gloo = dist.monitored_barrier

    @wraps(of_gloo)
    def barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """Return once all ranks have come. Raise RuntimeError, which names those that do not."""
        if isinstance(group or dist.group.WORLD, MpiProcessGroup):
            monitored_barrier(group, timeout, wait_all_ranks)
        else:
            of_gloo(group, timeout, wait_all_ranks)

    dist.monitored_barrier = dist.distributed_c10d.monitored_barrier = barrier


def fill_environment() -> None:
    """Set what torchrun sets, where it is not set."""
    os.environ.setdefault("RANK", str(StartedRanks.comm.rank))
    os.environ.setdefault("WORLD_SIZE", str(StartedRanks.comm.size))
    for rank, size in LOCAL:
        if rank in os.environ:
            os.environ.setdefault("LOCAL_RANK", os.environ[rank])
            os.environ.setdefault("LOCAL_WORLD_SIZE", os.environ.get(size, "1"))


def check_ranks(timeout: timedelta) -> None:
    """Raise ArgumentError unless the environment numbers the ranks that MPI has started. Collective.

    Raise DistBackendError where some don't come.
    """
    comm = StartedRanks.comm
    size, rank = (_of_environment(name, instead) for name, instead in (("WORLD_SIZE", comm.size), ("RANK", comm.rank)))
    if size != comm.size:
        raise ArgumentError(_other_size(f"WORLD_SIZE is {size}", size))
    ranks = np.empty(size, np.int64)
    request, end = comm.Iallgather(np.array([rank]), ranks), time.monotonic() + timeout.total_seconds()
    pause = Pause()
    while not request.Test():
        if time.monotonic() > end:
            raise dist.DistBackendError(
                f"init_process_group: rank {comm.rank} has waited {timeout.total_seconds():g} s for the {size} ranks "
                "that MPI has started"
            )
        pause.after(False)
    if sorted(ranks) != [*range(size)]:
        raise ArgumentError(
            f"init_process_group: RANK is {', '.join(map(str, ranks))} on the {size} ranks that MPI has started; "
            "leave it unset, or give each its own"
        )


def _of_environment(name: str, instead: int) -> int:
    """Return a number of the environment. Raise ArgumentError for what is none."""
    given = os.environ.get(name, str(instead))
    try:
        return int(given)
    except ValueError:
        raise ArgumentError(f"init_process_group: {name} is '{given}', no number") from None


def _other_size(asked: str, size: int) -> str:
    """Return the error of a number of ranks that MPI has not started."""
    started = StartedRanks.comm.size
    advice = "start the program by mpirun" if size > started else "leave WORLD_SIZE unset, or start as many"
    return f"init_process_group: {asked}, but MPI has started {started}; {advice}"


def check_threads() -> None:
    """Raise ArgumentError where MPI may not be called by the threads of the process groups."""
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise ArgumentError(
            "init_process_group: the backend scaffe needs an MPI that was started with MPI_THREAD_MULTIPLE, "
            "as mpi4py does unless its thread level is set"
        )


def meet(timeout: timedelta) -> tuple[Any, int, int]:
    """Return a store on rank 0, this rank and the number of ranks, as MPI has them. Collective."""
    comm, store, place = StartedRanks.comm, None, ("", 0)
    hosts = set(comm.allgather(socket.gethostname()))
    if comm.rank == 0:
        store = dist.TCPStore("0.0.0.0", 0, comm.size, True, timeout, wait_for_workers=False)
        host = os.environ.get(ADDRESS[0]) or ("127.0.0.1" if len(hosts) == 1 else socket.gethostname())
        place = host, store.port
    host, port = comm.bcast(place)
    if store is None:
        store = dist.TCPStore(host, port, comm.size, False, timeout, wait_for_workers=False)
    return store, _of_environment("RANK", comm.rank), comm.size


def make_group(given: Any, options: Any) -> MpiProcessGroup:
    """Return the process group that torch.distributed asks for. Collective over its ranks."""
    check_threads()
    presence = Presence(given.store, given.group_rank, given.group_size)
    if StartedRanks.comm.size < given.group_size:
        raise ArgumentError(_other_size(f"{given.group_size} ranks are asked for", given.group_size))
    ranks = [int(one) for one in presence.meet(str(StartedRanks.comm.rank), given.timeout)]
    members = StartedRanks.comm.Get_group().Incl(ranks)
    comm = StartedRanks.comm.Create_group(members, sum(map(ord, given.group_id)) % TAG)
    ending.watch()
    return MpiProcessGroup(comm, given.store, presence, given.timeout)


def shrink() -> int:
    """Give up all process groups, since a rank is lost; return the number of ranks left, of which the next are made.

    Collective over the ranks that are left. It needs Open MPI's `mpirun --with-ft ulfm`. Then call init_process_group:
    ranks are numbered anew, in the same order. Raise ArgumentError where MPI can't go on without a rank.
    """
    if not ending.is_tolerant():
        raise ArgumentError("shrink: only Open MPI's mpirun --with-ft ulfm goes on without a rank")
    groups = list(ending.GROUPS)
    for group in groups:
        group.give_up()
    if StartedRanks.comm is MPI.COMM_WORLD:
        atexit.register(ending.leave_for_good)
    StartedRanks.comm.Revoke()
    StartedRanks.comm = cast(MPI.Intracomm, StartedRanks.comm.Shrink())
    for group in groups:
        group.abandon()
    if dist.is_initialized():
        dist.destroy_process_group()
    for name in ("RANK", "WORLD_SIZE"):
        os.environ.pop(name, None)
    fill_environment()
    return int(StartedRanks.comm.size)
