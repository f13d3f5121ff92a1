"""Messages: send and receive of a process group, and the barrier that names the ranks that do not come."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from mpi4py import MPI

from collectives.errors import ArgumentError
from collectives.progress import PROGRESS, Pause
from collectives.torch.tensors import as_bytes, landing, nbytes, on_host
from collectives.torch.work import CollectiveWork

INTS = (1 << 31) - 1  # the largest tag of MPI's interface
TAGS = 1 << 14  # pairs of the messages of monitored barriers, at the upper end of MPI's


def tags(comm: MPI.Intracomm) -> int:
    """Return the number of tags that users' messages have."""
    top: int = comm.Get_attr(MPI.TAG_UB)  # type: ignore[assignment]
    return min(top, INTS) - 2 * TAGS


def check_tag(comm: MPI.Intracomm, tag: int) -> None:
    """Raise ArgumentError for a tag that users' messages lack."""
    if not 0 <= tag < tags(comm):
        raise ArgumentError(f"the tag is {tag}; it can be 0 to {tags(comm) - 1}")


class MessageWork(CollectiveWork):
    """A message under way. Whoever waits for anything in this process advances it, and a thread does."""

    failure: Exception | None = None

    def begin(self, request: MPI.Request, arrived: Callable[[], object]) -> MessageWork:
        """Advance this request from now on; call `arrived` at its end."""
        self._request, self._arrived = request, arrived
        self._has_arrived = False
        if not self.progress():
            PROGRESS.add(self)
            PROGRESS.use_thread()
        return self

    def progress(self) -> bool:
        """Advance without waiting; return whether the message has gone or come."""
        return PROGRESS.step(self, self._advance)

    def _advance(self) -> bool:
        if self._has_arrived:
            return False
        status, error = MPI.Status(), None
        try:
            if not self._request.Test(status):
                return False
            self.source = status.source
            self._check_length(status)
            with torch.no_grad():
                self._arrived()
        except Exception as found:
            error = self._group.breaks(dist.DistBackendError(f"{self.what}: {found}"))
        self._has_arrived = True
        PROGRESS.drop(self)
        self.end(error)
        return True

    def _check_length(self, status: MPI.Status) -> None:
        """Raise ArgumentError for a message that is shorter than what it is received into."""
        if self._results and (got := status.Get_count(MPI.BYTE)) != (room := nbytes(self._results[0])):
            raise ArgumentError(f"rank {self.source} has sent {got} bytes, expected {room}")

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Poll for a moment before waiting for the thread."""
        for _ in range(SPINS):
            if self._ended.is_set() or self.progress():
                break
        return super().wait(timeout)

    def is_completed(self) -> bool:
        """Return whether the message has gone or come."""
        return self._ended.is_set() or self.progress()


SPINS = 100


def send(comm: MPI.Intracomm, work: MessageWork, tensor: torch.Tensor, rank: int, tag: int) -> MessageWork:
    """Start to send a tensor."""
    room = on_host(tensor)
    return work.begin(comm.Isend(as_bytes(room), rank, tag), lambda: room)


def receive(comm: MPI.Intracomm, work: MessageWork, tensor: torch.Tensor, rank: int, tag: int) -> MessageWork:
    """Start to receive into a tensor; a negative rank is any."""
    landed = landing(tensor)
    room = landed.__enter__()
    request = comm.Irecv(as_bytes(room), MPI.ANY_SOURCE if rank < 0 else rank, tag)
    return work.begin(request, partial(landed.__exit__, None, None, None))


def monitored_barrier(group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
    """Return once all ranks of a group have come; raise RuntimeError on all, on rank 0 with the ranks that do not come.

    As torch.distributed.monitored_barrier, which PyTorch has for gloo alone. Rank 0 raises at the first rank that does
    not come in `timeout`, with `wait_all_ranks` after all of them, with their numbers.
    """
    group = group or dist.group.WORLD
    if isinstance(timeout, int | float):
        timeout = timedelta(seconds=timeout)
    if not hasattr(group, "messages"):
        raise ArgumentError("collectives.torch.monitored_barrier needs a group of the backend scaffe")
    group.monitored_barrier(timeout, wait_all_ranks)


class MonitoredBarrier:
    """One monitored barrier: all ranks send a byte to rank 0, which answers once all have come."""

    def __init__(self, comm: MPI.Intracomm, number: int, seconds: float):
        self.comm, self.seconds, self.tag = comm, seconds, tags(comm) + 1 + 2 * (number % TAGS)

    def run(self, wait_all_ranks: bool) -> None:
        """Wait for all ranks. Raise RuntimeError."""
        if self.comm.rank:
            self._report()
        else:
            self._collect(wait_all_ranks)

    def _report(self) -> None:
        comm = self.comm
        there, back = comm.Isend(bytearray(1), 0, self.tag), comm.Irecv(bytearray(1), 0, self.tag - 1)
        if not (self._comes(there) and self._comes(back)):
            back.Cancel()
            raise RuntimeError(
                f"[Rank {comm.rank}]: Rank {comm.rank} successfully reached monitoredBarrier, but received errors "
                f"while waiting for send/recv from rank 0: no answer in {1e3 * self.seconds:.0f} ms"
            )

    def _collect(self, wait_all_ranks: bool) -> None:
        end, missing = time.monotonic() + self.seconds, []
        if self.seconds <= 0:
            raise RuntimeError("[Rank 0]: Rank 0 timed out in monitoredBarrier after 0 ms")
        for rank in range(1, self.comm.size):
            request = self.comm.Irecv(bytearray(1), rank, self.tag)
            if not self._comes(request, end):
                request.Cancel()
                missing.append(rank)
                if not wait_all_ranks:
                    break
        if missing:
            ranks = f"Rank {missing[0]}" if len(missing) == 1 else f"Ranks {', '.join(map(str, missing))}"
            raise RuntimeError(f"[Rank 0]: {ranks} failed to pass monitoredBarrier in {1e3 * self.seconds:.0f} ms")
        MPI.Request.Waitall([self.comm.Isend(bytearray(1), r, self.tag - 1) for r in range(1, self.comm.size)])

    def _comes(self, request: MPI.Request, end: float | None = None) -> bool:
        """Return whether a request completes in time."""
        end = time.monotonic() + self.seconds if end is None else end
        pause = Pause()
        while not request.Test():
            if time.monotonic() > end:
                return False
            pause.after(False)
        return True
