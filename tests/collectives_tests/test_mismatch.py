"""What a rank asks and answers about a call, over a communicator that only notes messages."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collectives.calls import Calls
from collectives.execution.line import Line
from collectives.execution.maker import Call
from collectives.mismatch import AGREES, ANSWER, HAS_LEFT, QUESTION, Mismatch
from collectives.request import Request

KNOWN, OTHER = ((Call("allreduce", "sum", 0, elements, "float32", "auto", 0), 0, False) for elements in (8, 9))


class Noted:
    """A communicator of rank 0 of 3: messages come from `inbox`, by tag, and what is sent is noted."""

    rank, size = 0, 3

    def __init__(self) -> None:
        self.inbox: dict[int, deque[tuple[int, Any]]] = {QUESTION: deque(), ANSWER: deque()}
        self.sent: list[tuple[Any, int, int]] = []

    def isend(self, message: Any, rank: int, tag: int) -> SimpleNamespace:
        self.sent.append((message, rank, tag))
        return SimpleNamespace(Test=lambda: True)


@pytest.fixture
def mismatch(monkeypatch):
    """Rank 0's, in call 5; `parts` are the calls in which it took part."""
    parts: list[Any] = []
    calls = SimpleNamespace(
        entered=5, is_running=True, parts=parts, place=lambda number: KNOWN if number == 5 else HAS_LEFT
    )
    calls.take_part = lambda place: parts.append(place) or True
    made = Mismatch(calls)
    made.comm = Noted()

    def received(tag: int) -> list[tuple[int, Any]]:
        found = list(made.comm.inbox[tag])
        made.comm.inbox[tag].clear()
        return found

    monkeypatch.setattr(made, "_received", received)
    return made


def test_all_others_are_asked_once_and_joined_once_they_are_in_one_known_call(mismatch):
    answers = mismatch.comm.inbox[ANSWER]
    assert mismatch.reach() and mismatch.reach()
    assert mismatch.comm.sent == [(5, 1, QUESTION), (5, 2, QUESTION)]
    answers += [(1, (5, KNOWN)), (2, (4, KNOWN))]  # the second one is of the call before
    assert mismatch.reach() and not mismatch._calls.parts
    answers += [(2, (5, AGREES))]
    assert mismatch.reach() and mismatch.reach() and mismatch._calls.parts == [KNOWN]
    mismatch._calls.entered += 1
    assert mismatch.reach() and mismatch.comm.sent[2:] == [(6, 1, QUESTION), (6, 2, QUESTION)]


def test_a_rank_that_waits_to_agree_answers_too(mismatch):
    mismatch.comm.inbox[QUESTION] += [(1, 5)]
    assert mismatch.reach() and mismatch.comm.sent[2:] == [((5, KNOWN), 1, ANSWER)]


@pytest.mark.parametrize("places", [(KNOWN, OTHER), (KNOWN, HAS_LEFT), (HAS_LEFT, AGREES)])
def test_ranks_in_several_calls_or_in_later_ones_are_not_reached(mismatch, places):
    mismatch.comm.inbox[ANSWER] += [(1, (5, places[0])), (2, (5, places[1]))]
    assert not mismatch.reach() and not mismatch._calls.parts


def test_others_that_agree_come_by_themselves(mismatch):
    mismatch.comm.inbox[ANSWER] += [(1, (5, AGREES)), (2, (5, AGREES))]
    assert mismatch.reach() and not mismatch._calls.parts


def test_questions_are_answered_in_a_call_that_lasts_and_no_sooner(mismatch):
    mismatch.comm.inbox[QUESTION] += [(1, 5), (2, 6)]
    mismatch.look()
    assert not mismatch.comm.sent  # it has come to this call since the last look
    mismatch.look()
    mismatch.look()
    assert mismatch.comm.sent == [((5, KNOWN), 1, ANSWER)]
    mismatch._calls.entered = 6
    mismatch._calls.is_running = False
    mismatch.look()
    mismatch.look()
    assert len(mismatch.comm.sent) == 1  # this thread may be in MPI, and the main thread alone
    mismatch._calls.is_running = True
    mismatch.look()
    mismatch.look()
    assert mismatch.comm.sent[1:] == [((6, HAS_LEFT), 2, ANSWER)]


def test_no_question_is_answered_about_a_call_that_is_entered_meanwhile(mismatch, monkeypatch):
    """Its plan is not known yet: to answer that this rank has left it would end the job."""

    def received(tag: int) -> list[tuple[int, Any]]:
        mismatch._calls.entered, mismatch._calls.is_running = 6, False
        return [(1, 6)]

    mismatch.look()
    monkeypatch.setattr(mismatch, "_received", received)
    mismatch.look()
    assert not mismatch.comm.sent


class Entered(Calls):
    """The calls of rank 0, which has entered the fifth, a known one, and agreed on the fourth."""

    def __init__(self) -> None:
        super().__init__()
        self.plan: Any = SimpleNamespace()
        self.entered, self._agreed, self._plans = 5, 4, {KNOWN[:2]: self.plan}

    def _find(self, given: tuple[Any, ...]) -> Any:
        raise AssertionError


def test_a_rank_compares_after_a_known_call_of_which_it_has_told_and_after_no_other():
    calls, running = Entered(), SimpleNamespace()
    assert calls.place(5) == HAS_LEFT and not calls._asked
    running.plan, calls._running = calls.plan, running
    assert calls.place(4) == HAS_LEFT and not calls._asked
    assert calls.place(5) == KNOWN and calls._asked == 5
    calls.entered = 6  # it has left the fifth before the look
    calls.compare(calls.plan)
    assert not calls._asked
    calls._agreed = 6
    assert calls.place(6) == AGREES and not calls._asked


def test_of_several_requests_a_rank_is_in_the_last_one_while_it_waits():
    calls, arrays = Entered(), np.ones(8, np.float32)
    calls.plan.mark, calls.plan.bind, calls.plan.prepare, calls.plan.take = (lambda *given: None,) * 4
    calls.plan.line = Line()
    first = Request(calls.plan, arrays, None, "allreduce", calls)
    calls.entered = 6
    last = Request(calls.plan, arrays, None, "allreduce", calls)
    calls.begin_wait(first)
    assert calls.place(6) == HAS_LEFT
    calls.begin_wait(last)
    assert calls.place(6) == (*KNOWN[:2], True)
    calls.end_wait()
    assert calls.place(6) == HAS_LEFT


def test_no_rank_takes_part_in_a_call_that_it_lacks_or_of_devices():
    calls = Entered()
    assert not calls.take_part(OTHER)
    on_device = KNOWN[0]._replace(memory="device")
    calls._plans[on_device, 0] = calls.plan
    assert not calls.take_part((on_device, 0, False))
