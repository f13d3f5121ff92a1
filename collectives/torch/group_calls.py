"""GroupCalls: how a process group runs the collectives that PyTorch calls, and what it knows of their ranks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch.distributed import DistBackendError

from collectives.communicator import Communicator
from collectives.errors import CollectiveError, WaitTimeout
from collectives.loss import as_rank_lost, is_loss
from collectives.torch import ending
from collectives.torch.presence import Presence, named
from collectives.torch.work import SECOND, CollectiveWork, GroupThread

POLLS = 0.01  # seconds for which a wait in the caller, who computes nothing meanwhile, polls and doesn't sleep
LAST = 5.0  # seconds that a group waits, when it is destroyed, for the other ranks to free what they share
MESSAGE = 0  # in place of a call's number: messages have none
Job = Callable[[CollectiveWork], object]


class GroupCalls(dist.ProcessGroup):
    """The calls of a process group over the ranks of an MPI communicator, which it frees.

    - `store`: c10d's store of this group.
    - `presence`: the ranks' notes in it.
    - `timeout`: of calls that give none.
    """

    def __init__(self, comm: MPI.Intracomm, store: Any, presence: Presence, timeout: timedelta):
        super().__init__(comm.rank, comm.size)
        self._store, self._raw, self.presence, self._timeout = store, comm, presence, timeout
        self.comm, self.messages = Communicator(comm), comm.Dup()
        self._runner, self._entered, self._barriers = GroupThread(f"collectives of {comm.size} ranks"), 0, 0
        self._check = dist.get_debug_level() == dist.DebugLevel.DETAIL  # ranks compare the arguments of each call
        self._known: set[object] = set()  # calls whose plans are there
        self.broken: Exception | None = None
        self._names = ["", ""]
        ending.GROUPS.add(self)

    def _start(self, what: str, opts: Any, job: Job, results: Any, key: object = None) -> CollectiveWork:
        """Return the Work of a collective: done where nothing keeps the caller from doing it at once, else begun.

        `key` says which plan it takes: equal keys take the same.
        """
        self.check_usable(what)
        self._entered += 1
        key = (what, key)
        in_caller = (
            key in self._known and self._runner.is_idle and not self._check and not getattr(opts, "asyncOp", True)
        )
        work = CollectiveWork(self, what, self._entered, results, self._seconds(opts), in_caller)
        job = after_device(job, results)
        if in_caller:
            work.end(work.attempt(self._guarded(job)))
        else:
            self._runner.put(work, self._guarded(job, key))
        return work

    def check_usable(self, what: str) -> None:
        """Raise DistBackendError where the group has failed, or was destroyed."""
        if self.broken is not None:
            raise DistBackendError(f"{what}: this process group can't be used any more: {self.broken}")

    def _guarded(self, job: Job, key: object = None) -> Job:
        """Return a job whose errors are PyTorch's, and which notes that its plan is there."""

        def run(work: CollectiveWork) -> None:
            try:
                job(work)
            except DistBackendError:
                raise
            except Exception as error:
                raise self._as_backend_error(work.what, error) from error
            self._known.add(key)

        return run

    def _as_backend_error(self, what: str, error: Exception) -> DistBackendError:
        """Return PyTorch's error for one of ours; all ranks learn that a rank is lost."""
        found = DistBackendError(f"{what}, rank {self.rank()} of {self.size()}: {as_rank_lost(error, self.comm.comm)}")
        if not isinstance(error, CollectiveError | ValueError) or is_loss(error, self.comm.comm):
            self.breaks(found)
            if is_loss(error, self.comm.comm) and ending.is_tolerant():
                self.give_up()
        return found

    def _wait(self, work: CollectiveWork, request: Any) -> None:
        """Wait for a request of the Communicator, or of MPI, within the work's time."""
        advance = request.Test if isinstance(request, MPI.Request) else request.advance
        polls_until = time.monotonic() + POLLS * work.is_in_caller
        while not advance():
            if time.monotonic() > polls_until:
                break
            os.sched_yield()
        else:
            return
        end = time.monotonic() + work.seconds
        while not self._comes(request, max(0.0, min(SECOND, end - time.monotonic()))):
            error = self.is_late(work.number, end, work.what)
            if error is not None:
                raise self.breaks(error)

    @staticmethod
    def _comes(request: Any, seconds: float) -> bool:
        """Return whether a request completes within so many seconds."""
        if isinstance(request, MPI.Request):
            end = time.monotonic() + seconds
            while not request.Test():
                if time.monotonic() > end:
                    return False
                time.sleep(1e-4)
            return True
        try:
            request.wait(seconds)
        except WaitTimeout:
            return False
        return True

    def is_late(self, number: int, waits_until: float, what: str) -> Exception | None:
        """Say that this rank waits in a call; return the error where it has waited too long, or a rank has ended."""
        self.presence.say(number)
        if gone := self.presence.left():
            problem = f"waits, but {named(gone)} no longer there"
        elif time.monotonic() < waits_until:
            return None
        elif number == MESSAGE:
            problem = "has met its timeout"
        else:
            problem = f"has met its timeout in call {number}; {named(self.presence.missing(number))} missing"
        error: Exception = DistBackendError(f"{what}: rank {self.rank()} {problem}")
        return error

    def breaks(self, error: Exception) -> Exception:
        """Take note that the group can't be used any more; return the error."""
        self.broken = self.broken or error
        return error

    def _seconds(self, opts: Any) -> float:
        """Return how long a call may wait."""
        given = getattr(opts, "timeout", opts if isinstance(opts, timedelta) else None)
        seconds = given.total_seconds() if isinstance(given, timedelta) else -1.0
        return seconds if seconds > 0 else float(self._timeout.total_seconds())

    @property
    def is_stuck(self) -> bool:
        """Return whether a collective is under way that may never end."""
        return not self._runner.is_idle

    def leave(self) -> None:
        """Say that this rank makes no more calls."""
        self.presence.leave()

    def give_up(self) -> None:
        """End all waits of this group, on all ranks, since a rank is lost. Not collective."""
        self.breaks(DistBackendError("a rank is lost"))
        self.messages.Revoke()
        self.comm.revoke()

    def abandon(self) -> None:
        """Drop what the group has, once its ranks are lost."""
        self._runner.end(LAST)
        self.comm.abandon()
        ending.GROUPS.discard(self)

    def shutdown(self) -> None:
        """End the thread; free what the ranks share once all have come, else leave it to the process."""
        if self not in ending.GROUPS:
            return
        ending.GROUPS.discard(self)
        if self.broken is None and self._runner.end(LAST) and self._comes(self._raw.Ibarrier(), LAST):
            self.comm.free()
            self.messages.Free()
            self._raw.Free()
        else:
            self.leave()
        self.breaks(DistBackendError("it was destroyed"))

    abort = shutdown


def reduce_op(opts: Any) -> Any:
    """Return the operation of a call, by default the sum."""
    return dist.ReduceOp.SUM if opts is None else opts.reduceOp


def op_key(opts: Any) -> object:
    """Return what tells operations apart."""
    op = reduce_op(opts)
    return op if isinstance(op, dist.ReduceOp.RedOpType) else op.__getstate__()[0]


def kinds(tensors: Sequence[torch.Tensor]) -> tuple[object, ...]:
    """Return what tells the plans of tensors apart: lengths and types."""
    return tuple((one.numel(), one.dtype) for one in tensors)


def after_device(job: Job, tensors: Any) -> Job:
    """Return a job that begins once what the caller's GPU stream has to do, as of now, is done."""
    if not any(isinstance(one, torch.Tensor) and one.is_cuda for one in tensors):
        return job
    event = torch.cuda.Event()
    event.record()

    def run(work: CollectiveWork) -> None:
        event.synchronize()
        job(work)
        torch.cuda.current_stream().synchronize()

    return run
