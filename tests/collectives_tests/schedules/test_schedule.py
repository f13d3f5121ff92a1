from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.errors import AlgorithmError
from collectives.schedules.algorithms import make_schedule
from collectives.schedules.registry import algorithms
from collectives.schedules.schedule import OUT, OWN, Schedule, Step, StepKind, slots, uses_out
from collectives.verbs import SCHEDULED as VERBS

TREES = [name for each in algorithms("bcast") for name in each.samples]
KINDS = [(op, name) for op in VERBS for each in algorithms(op) for name in each.samples]


def run(schedule: Schedule, inputs: np.ndarray) -> np.ndarray:
    """Take all ranks' steps on plain arrays: sends never wait, a rank that misses a message tries again later."""
    out = np.full_like(inputs, -1)
    for rank in range(0 if schedule.verb.joins else schedule.size):
        part = slice(*schedule.contribution(rank))
        out[rank, part] = inputs[rank, part]
    scratch: dict[tuple[int, int], np.ndarray] = {}
    mail: dict[tuple[int, int, int], list[np.ndarray]] = {}
    parts = [list(schedule.rank(rank)) for rank in range(schedule.size)]
    while any(parts):
        before = sum(map(len, parts))
        for rank, steps in enumerate(parts):
            while steps and take(rank, steps[0], inputs, out, scratch, mail):
                steps.pop(0)
        assert sum(map(len, parts)) < before, "a message is missing"
    assert not any(mail.values())
    return out


def brought(schedule: Schedule, rank: int) -> np.ndarray:
    """Return which elements a rank brings."""
    start, stop = schedule.contribution(rank)
    return (np.arange(schedule.elements) >= start) & (np.arange(schedule.elements) < stop)


def take(rank: int, step: Step, own: np.ndarray, out: np.ndarray, scratch: dict, mail: dict) -> bool:
    def at(place: int) -> np.ndarray:
        if place >= 0:
            return scratch[rank, place][: step.stop - step.start]
        return (own if place == OWN else out)[rank, step.start : step.stop]

    if step.kind is StepKind.SEND:
        mail.setdefault((rank, step.peer, step.tag), []).append(at(step.source).copy())
        return True
    if step.kind is StepKind.COPY:
        at(step.target)[:] = at(step.source)
        return True
    waiting = mail.get((step.peer, rank, step.tag))
    if not waiting:
        return False
    message = waiting.pop(0)
    if step.kind is StepKind.RECV:
        at(step.target)[:] = message
        return True
    scratch[rank, step.slot] = message
    total = at(step.source) + message
    if step.target >= 0:
        scratch[rank, step.target] = total
    else:
        at(OUT)[:] = total
    return True


@given(
    kind=st.sampled_from(KINDS),
    size=st.integers(1, 24),
    elements=st.integers(0, 50),
    chunk=st.integers(1, 60),
    depth=st.integers(2, 5),
    data=st.data(),
)
def test_the_result_is_the_sum_of_integers(
    kind: tuple[str, str], size: int, elements: int, chunk: int, depth: int, data: st.DataObject
) -> None:
    op, algorithm = kind
    root, order = data.draw(st.integers(0, size - 1)), data.draw(st.permutations(range(size)))
    order.insert(0, order.pop(order.index(root)))
    cuts = sorted(data.draw(st.lists(st.integers(0, elements), min_size=size - 1, max_size=size - 1)))
    counts = [stop - start for start, stop in pairwise([0, *cuts, elements])]
    how = {"chunk": chunk, "root": root, "depth": depth, "order": order, "counts": counts}
    schedule = make_schedule(op, algorithm, size, elements, **how)
    inputs = np.random.default_rng(size * 1000 + elements).integers(-99, 99, (size, elements))
    expected = sum(np.where(brought(schedule, rank), inputs[rank], 0) for rank in range(size))
    out = run(schedule, inputs)
    parts = [schedule.result(rank) for rank in range(size)]
    for rank, (start, stop) in enumerate(parts):
        assert (out[rank, start:stop] == expected[start:stop]).all()
    covered = [element for start, stop in parts for element in range(start, stop)]
    copies = size if schedule.verb.spreads else 1
    assert sorted(covered) == sorted(list(range(elements)) * copies)


@pytest.mark.parametrize("algorithm", TREES)
def test_chunks_do_not_change_the_order_of_additions(algorithm: str) -> None:
    inputs = np.random.default_rng(1).standard_normal((13, 40)).astype(np.float32)
    whole = run(make_schedule("reduce", algorithm, 13, 40, chunk=40, root=5), inputs)[5]
    if algorithm != "two-tree":
        assert (run(make_schedule("reduce", algorithm, 13, 40, chunk=3, root=5), inputs)[5] == whole).all()
    assert (run(make_schedule("allreduce", algorithm, 13, 40, chunk=40, root=5), inputs) == whole).all()


@pytest.mark.parametrize(("op", "algorithm"), [("allreduce", "ring"), ("allreduce", "halving"), ("allreduce", "cb-4")])
def test_all_ranks_get_the_same_bits(op: str, algorithm: str) -> None:
    out = run(make_schedule(op, algorithm, 11, 40, chunk=3), np.random.default_rng(1).standard_normal((11, 40)))
    assert (out == out[0]).all()


def test_scratch_does_not_grow_with_the_number_of_chunks_or_children() -> None:
    steps = make_schedule("reduce", "flat", 50, 1000, chunk=10).rank(0)
    assert slots(steps) <= 8 and uses_out(steps)
    steps = make_schedule("reduce", "chain", 50, 1000, chunk=10, depth=3).rank(4)
    assert slots(steps) == 3 and not uses_out(steps)


def test_a_schedule_prints_every_step() -> None:
    text = str(make_schedule("allreduce", "chain", 3, 4, chunk=2, depth=2))
    assert text.splitlines()[0] == "allreduce of 4 elements over 3 ranks, chain, chunk 2"
    assert "  0 recv slot 0 from 2 tag 0, slot 0[0:2] = own + it" in text
    assert "  1 send slot 0[0:2] to 0 tag 0" in text
    assert "  0 recv slot 0 from 1 tag 0, out[0:2] = own + it" in text


def test_a_rank_that_is_not_there_is_refused() -> None:
    with pytest.raises(AlgorithmError, match="rank 3 of a schedule for 3 ranks"):
        make_schedule("reduce", "chain", 3, 4).rank(3)


def test_the_steps_of_a_rank_are_written_once() -> None:
    written = []

    class Written:
        def of(self, rank: int) -> list:
            written.append(rank)
            return []

    schedule = replace(make_schedule("allreduce", "ring", 3, 6), steps=Written())
    for rank in (1, 1, 2, 1):
        schedule.rank(rank)
    assert written == [1, 2, 1]


def test_what_plans_share_cannot_be_changed_and_is_shown_without_its_steps() -> None:
    schedule = make_schedule("allreduce", "ring", 1000, 1000)
    with pytest.raises(FrozenInstanceError):
        schedule.root = 1  # type: ignore[misc]
    assert len(repr(schedule)) < 200
