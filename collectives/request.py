"""Request: a collective that was started, as MPI's non-blocking calls return it, and waits for several.

    sums = comm.iallreduce(gradients)
    compute()
    sums.wait()

Requests of one communicator run one after the other. Whoever waits for one advances all that is under way in the
process (`collectives.progress`), so ranks may wait in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from collectives.errors import ArgumentError, DeviceFault
from collectives.loss import raises_rank_lost
from collectives.progress import PROGRESS

if TYPE_CHECKING:
    from collectives.execution.plans import Plan


class WaitingCalls(Protocol):
    """The calls of a Communicator, which know in which request this rank waits: `entered` is the last one's number."""

    entered: int

    def begin_wait(self, request: Request) -> None:
        """Note that this rank waits for a request."""

    def end_wait(self) -> None:
        """Note that it waits no more."""

    def compare(self, plan: Plan) -> None:
        """Raise, on all ranks, why a rank was in another call than the one that this plan has ended, if it was."""


class Request:
    """A collective under way. The arrays must not be touched, nor dropped results read, until it is complete.

    A request that nobody waits for is completed by the next call on its communicator.
    """

    failure: Exception | None = None

    def __init__(self, plan: Plan, send: np.ndarray, recv: np.ndarray | None, what: str, calls: WaitingCalls):
        self.plan, self._send, self._recv, self._what = plan, send, recv, what
        self._calls, self.number = calls, calls.entered
        self.comm: Any = getattr(plan, "comm", None)  # for `raises_rank_lost`
        self._has_begun = self._is_complete = False
        self._error: Exception | None = None  # which ended it
        plan.mark()
        plan.line.join(self)
        PROGRESS.add(self)
        self.advance()

    def wait(self, timeout: float | None = None) -> None:
        """Return once the collective is complete on this rank: results are there, and contributions may be changed.

        Raise WaitTimeout after `timeout` seconds: the request is then still under way. Raise what the blocking call
        raises, and ArgumentError in a thread that may not call MPI.
        """
        if self.failure is not None:
            self.advance()
        if not self._is_complete:
            self._calls.begin_wait(self)
            try:
                PROGRESS.wait_until(lambda: self._is_complete, self, timeout, self._what)
            finally:
                self._calls.end_wait()
            self._calls.compare(self.plan)
        self.plan.follow()

    def finish(self) -> None:
        """Wait, as a plan in its communicator's line does."""
        self.wait()

    def test(self) -> bool:
        """Advance all that is under way in this process, without waiting; return whether this is complete."""
        if not self._is_complete:
            PROGRESS.advance(self)
        if self._is_complete:
            self.plan.follow()
        return self._is_complete

    @property
    def is_complete(self) -> bool:
        """Return whether it is known to be complete. Advances nothing; any thread may ask."""
        return self._is_complete

    def progress(self) -> bool:
        """Advance without waiting; return whether anything advanced."""
        before = self.plan.taken, self._has_begun
        self.advance()
        return (self.plan.taken, self._has_begun) != before

    @raises_rank_lost
    def advance(self) -> bool:
        """Advance without waiting; return whether the end is reached."""
        return PROGRESS.step(self, self._advance)

    def _advance(self) -> bool:
        """Take the plan's steps, once the requests before this one are complete."""
        line = self.plan.line
        if self._error is not None:
            raise self._error
        try:
            if not self._is_complete and line.is_turn(self):
                if not self._has_begun:
                    self.plan.bind(self._send, self._recv)
                    self.plan.prepare()
                    self._has_begun = True
                if self.plan.take():
                    self._is_complete = True
                    line.leave(self)
                    PROGRESS.drop(self)
        except Exception as error:
            line.leave(self)
            self._error = error.located(self._what) if isinstance(error, DeviceFault) else error
            raise self._error from None
        return self._is_complete


def waitall(requests: Sequence[Request], timeout: float | None = None) -> None:
    """Wait for all of several requests, of any communicators. Raise as `Request.wait` does."""
    _check(requests)
    _wait(requests, lambda: all(one.is_complete for one in requests), timeout)
    for one in requests:
        one.wait()


def waitany(requests: Sequence[Request], timeout: float | None = None) -> int:
    """Wait for any of several requests; return the index of one that is complete. Raise as `Request.wait` does."""
    _check(requests)
    if not requests:
        raise ArgumentError("waitany needs a request")
    _wait(requests, lambda: any(one.is_complete for one in requests), timeout)
    found = next(i for i, one in enumerate(requests) if one.is_complete)
    requests[found].wait()
    return found


def _wait(requests: Sequence[Request], is_done: Callable[[], bool], timeout: float | None) -> None:
    """Advance all requests until `is_done()`. Raise the failure of any of them."""

    def is_over() -> bool:
        return is_done() or any(one.failure is not None for one in requests)

    if not is_over():
        PROGRESS.wait_until(is_over, requests[0], timeout, f"{len(requests)} requests")
    for one in requests:
        if one.failure is not None:
            one.wait()


def _check(requests: Any) -> None:
    """Raise ArgumentError for what are no requests."""
    if not isinstance(requests, Sequence) or not all(isinstance(one, Request) for one in requests):
        raise ArgumentError("expected a list of requests of collectives")
