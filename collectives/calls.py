"""Calls: how a Communicator finds the plan of a call, and runs it. A call that was made before is one look-up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from collectives.agreement import share
from collectives.arguments import Checked, on_device
from collectives.errors import DeviceFault
from collectives.execution.line import Line
from collectives.execution.plans import Plan, kept
from collectives.loss import as_rank_lost
from collectives.mismatch import AGREES, HAS_LEFT, Mismatch, Place
from collectives.request import Request
from collectives.tuning.table import HOST

if TYPE_CHECKING:
    from mpi4py import MPI

    from collectives.execution.maker import Call

CallArguments = tuple[Any, ...]  # what, op, root, algorithm, chain_size, chunk_bytes, check, counts
CHECK, COUNTS = 6, 7  # places
MOST_CALLS = 1000  # calls whose plans are cached


class Calls(ABC):
    """The calls of a Communicator. `_find` makes plans."""

    comm: MPI.Intracomm
    _line: Line
    _plans: dict[tuple[Call, int], Plan]

    def __init__(self) -> None:
        super().__init__()
        self.entered = 0  # calls
        self._running: CachedCall | Request | None = None  # the known call in which this rank is
        self._agreed = 0  # the number of the last call on which this rank has begun to agree with the others
        self._asked = 0  # the number of a call in which a rank that is in another one takes part
        self._mismatch = Mismatch(self)
        self._last: dict[tuple[Any, ...], CachedCall] = {}  # by a call's arguments and the ids of its arrays
        self._newest = NO_CALL
        self._calls: defaultdict[Plan, deque[tuple[Any, ...]]] = defaultdict(deque)  # each plan's keys in `_last`

    @abstractmethod
    def _find(self, given: tuple[Any, ...]) -> tuple[Plan, Checked]:
        """Return the plan of a call, and the arrays to bind it to. Collective where the call is new."""

    def _call(
        self,
        send: Any,
        recv: Any,
        what: str,
        op: Any,
        root: Any,
        algorithm: Any,
        chain_size: Any,
        chunk_bytes: Any,
        check: Any,
        counts: Any,
    ) -> None:
        """Run the plan of a call. The newest one's arguments are known at once: short messages feel every step here."""
        if self._line.plans:
            self._line.finish()
        self.entered += 1
        known = self._newest
        s, r, w, o, t, a, z, b, c, n = known.given
        if not (
            (s is send and r is recv and w is what and o is op and t is root)
            and (a is algorithm and z is chain_size and b is chunk_bytes and c is check and n is counts)
        ):
            known = self._known((what, op, root, algorithm, chain_size, chunk_bytes, check, counts), send, recv)
            self._newest = known if known.lasts and check is False else NO_CALL
        run = known.run
        self._running = known
        try:
            run()
        except DeviceFault as error:
            raise error.located(f"{what} of {known.bound_send.nbytes} bytes") from None
        except Exception as error:
            raise as_rank_lost(error, self.comm)  # noqa: B904  the same error, or what it means
        finally:
            self._running = None
        if self._asked:
            self.compare(known.plan)

    def _start(self, send: Any, recv: Any, how: CallArguments) -> Request:
        """Return the request of a call, which has begun or waits for its turn."""
        self.entered += 1
        known = self._known(how, send, recv)
        what = f"{how[0]} of {known.bound_send.nbytes} bytes"
        return Request(known.plan, known.bound_send, known.bound_recv, what, self)

    def begin_wait(self, request: Request) -> None:
        """Note that this rank waits for a request. Of several it is in the last one alone."""
        self._running = request if request.number == self.entered else None

    def end_wait(self) -> None:
        """Note that it waits no more."""
        self._running = None

    def _known(self, how: CallArguments, send: Any, recv: Any) -> CachedCall:
        """Return a call made before, or find the plan of a new one."""
        if isinstance(how[COUNTS], list):  # which the caller may change later
            how = (*how[:COUNTS], tuple(how[COUNTS]))
        key = (*how, id(send), id(recv))
        try:
            known = self._last.get(key)
        except Exception:  # an argument that can be no key
            known = None
        is_checked = how[CHECK] is not False
        return self._know(how, key, send, recv) if known is None or is_checked else known

    def _know(self, how: CallArguments, key: tuple[Any, ...], send: Any, recv: Any) -> CachedCall:
        """Find a call's plan and cache it, in place of the plan's oldest calls."""
        if not self._mismatch.has_begun and self.comm and self.comm.size > 1:  # before anything can differ
            self._mismatch.begin()
        what, op, root, algorithm, chain_size, chunk_bytes, check, counts = how
        given = what, send, recv, op, root, algorithm, chain_size, chunk_bytes, check, 0, False, counts
        plan, checked = self._find(given)
        bound = checked.send, checked.recv
        known = CachedCall(plan, send, recv, how, *bound)
        if (known.lasts or plan.send is Plan.send) and not self._line.plans:  # `take_part` runs it over these
            plan.bind(*bound)
        if not known.lasts or _has_no_hash(key):
            return known
        if len(self._last) >= MOST_CALLS:
            self._forget_calls()
        self._last[key] = known
        calls = self._calls[plan]
        calls.append(key)
        while len(calls) > kept(checked.send.nbytes):
            self._last.pop(calls.popleft(), None)
        return known

    @property
    def is_running(self) -> bool:
        """Return whether this rank is in a known call."""
        return self._running is not None

    def place(self, number: int) -> Place:
        """Return where this rank is, of the call with a number that it has entered. For any thread.

        Once a known call's place is returned, this rank compares its call with the others' after it.
        """
        if number < self.entered:
            return HAS_LEFT
        if number == self._agreed:
            return AGREES
        self._asked = number  # before the look: a call that ends after it sees this
        running = self._running
        if running is not None:
            call, number = next(key for key, plan in list(self._plans.items()) if plan is running.plan)
            return call, number, isinstance(running, Request)
        self._asked = 0
        return HAS_LEFT

    def take_part(self, place: tuple[Call, int, bool]) -> bool:
        """Run a known call for the others' sake, over arrays of an earlier one. Return False if it can't be run."""
        call, number, is_started = place
        plan = self._plans.get((call, number))
        if plan is None or call.memory != HOST:
            return False
        send, recv = plan.send, plan.recv
        if send.size == 0 < call.elements:
            return False
        written = [array for array in (send, recv) if array is not None and array.flags.writeable]
        kept_values = [array.copy() for array in written]
        if is_started:  # MPI's own non-blocking collectives match no blocking ones
            plan.start()
            plan.finish()
        else:
            plan.run()
        for array, values in zip(written, kept_values, strict=True):
            np.copyto(array, values)
        return True

    def compare(self, plan: Plan) -> None:
        """Raise, on all ranks, why a rank was in another call than the one that this plan has ended, if it was."""
        asked, self._asked = self._asked, 0
        if asked == self.entered:
            call, over = next(call for (call, _), one in self._plans.items() if one is plan), self._mismatch.comm
            assert over is not None
            share(over, None, entered=self.entered, values={**call.described(), "the call": "made before"})

    def _forget_calls(self) -> None:
        """Empty the cache of calls."""
        self._last.clear()
        self._calls.clear()
        self._newest = NO_CALL


def _is_lasting(array: Any) -> bool:
    """Return whether an object of this identity always has the same memory."""
    return array is None or type(array) is np.ndarray or on_device(array)


def _has_no_hash(key: tuple[Any, ...]) -> bool:
    """Return whether a call's arguments can be no key of a dictionary, as MPI's operations."""
    try:
        hash(key)
    except Exception:
        return True
    return False


class CachedCall:
    """A call made before: its plan, its arrays as given, how they are used, and the arrays to bind the plan to.

    `run` does it. `lasts`: the given objects always have the same memory, and say the same.
    """

    __slots__ = "bound_recv", "bound_send", "given", "lasts", "plan", "run"

    def __init__(self, plan: Plan, send: Any, recv: Any, how: CallArguments, bound_send: Any, bound_recv: Any):
        self.plan, self.given, self.bound_send, self.bound_recv = plan, (send, recv, *how), bound_send, bound_recv
        self.lasts = _is_lasting(send) and _is_lasting(recv) and isinstance(how[COUNTS], tuple | None)
        self.run = plan.call_over(bound_send, bound_recv) or partial(_run, plan, bound_send, bound_recv)


def _run(plan: Plan, send: Any, recv: Any) -> None:
    """Run a plan over the arrays of a call."""
    if plan.send is not send or plan.recv is not recv:
        plan.bind(send, recv)
    plan.run()


NO_CALL = CachedCall(Plan(), object(), None, (None,) * 8, None, None)
