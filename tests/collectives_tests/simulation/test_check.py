from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.errors import ScheduleError
from collectives.execution.execute import InFlight
from collectives.schedules.algorithms import make_schedule
from collectives.schedules.registry import algorithms
from collectives.schedules.schedule import OUT, OWN, Schedule, Step, StepKind
from collectives.simulation.check import check
from collectives.verbs import SCHEDULED as VERBS

KINDS = [(op, name) for op in VERBS for each in algorithms(op) for name in each.samples]


@settings(max_examples=80)
@given(
    kind=st.sampled_from(KINDS),
    size=st.integers(1, 20),
    elements=st.integers(0, 40),
    chunk=st.integers(1, 50),
    depth=st.integers(2, 5),
    in_flight=st.builds(InFlight, st.integers(2, 9), st.integers(2, 9)),
    seed=st.integers(0, 1 << 30),
    weights=st.lists(st.sampled_from([0, 0, 1, 2, 9]), min_size=20, max_size=20),
)
def test_every_algorithm_is_right(
    kind: tuple[str, str],
    size: int,
    elements: int,
    chunk: int,
    depth: int,
    in_flight: InFlight,
    seed: int,
    weights: list[int],
) -> None:
    check(make_schedule(*kind, size, elements, chunk=chunk, root=size // 2, depth=depth), in_flight, seed)
    counts = weights[:size]
    check(make_schedule(*kind, size, sum(counts), chunk=chunk, depth=depth, counts=counts), in_flight, seed)


@pytest.mark.parametrize("size", [*range(1, 18), 24, 33])
def test_exchanges_are_right_over_any_number_of_ranks(size: int) -> None:
    for op in ("allreduce", "reduce_scatter", "allgather"):
        for algorithm in ("ring", "halving") if size < 40 else ("halving",):
            check(make_schedule(op, algorithm, size, 2 * size + 1, chunk=3))
            counts = [rank * 5 % 4 for rank in range(size)]
            check(make_schedule(op, algorithm, size, sum(counts), chunk=2, counts=counts))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_root_is_right(size: int) -> None:
    for op, algorithm in KINDS:
        for root in range(size):
            check(make_schedule(op, algorithm, size, 7, chunk=2, root=root))


@pytest.mark.parametrize(("op", "algorithm"), KINDS)
def test_the_least_scratch_and_window_suffice(op: str, algorithm: str) -> None:
    check(make_schedule(op, algorithm, 6, 60, chunk=2, depth=2), InFlight(receives=2, sends=2))


@pytest.mark.parametrize("size", [100, 200])
@pytest.mark.parametrize("algorithm", ["chain", "binomial", "cb-8", "ccb-8", "two-tree"])
def test_many_ranks_are_right(algorithm: str, size: int) -> None:
    check(make_schedule("reduce", algorithm, size, 11, chunk=3, root=size - 3))


@pytest.mark.parametrize(("op", "algorithm", "size"), [("allreduce", "halving", 100), ("allreduce", "ring", 31)])
def test_exchanges_of_many_ranks_are_right(op: str, algorithm: str, size: int) -> None:
    check(make_schedule(op, algorithm, size, 301, chunk=100))


def test_messages_beyond_two_gibibytes_are_right() -> None:
    check(make_schedule("allreduce", "cb-2", 5, 3 << 30, chunk=1 << 30))


@dataclass(frozen=True)
class Edited:
    """Steps of all ranks, of which one rank's have been changed."""

    parts: dict[int, list[Step]]

    def of(self, rank: int) -> list[Step]:
        return self.parts[rank]


def edited(schedule: Schedule, rank: int, edit: Callable[[list[Step]], object]) -> Schedule:
    parts = {r: schedule.rank(r) for r in range(schedule.size)}
    edit(parts[rank])
    return replace(schedule, steps=Edited(parts))


def find(steps: list[Step], op: StepKind, number: int = 0) -> int:
    return [i for i, step in enumerate(steps) if step.kind is op][number]


def change(op: StepKind, number: int = 0, **fields: int) -> Callable[[list[Step]], None]:
    def edit(steps: list[Step]) -> None:
        i = find(steps, op, number)
        steps[i] = steps[i]._replace(**fields)

    return edit


def drop(op: StepKind) -> Callable[[list[Step]], object]:
    return lambda steps: steps.pop(find(steps, op))


def swap(steps: list[Step]) -> None:
    """Send the first two chunks in the opposite order."""
    i, j = find(steps, StepKind.SEND), find(steps, StepKind.SEND, 1)
    steps[i], steps[j] = steps[j], steps[i]


chain = make_schedule("reduce", "chain", 4, 12, chunk=2, depth=2)
binomial = make_schedule("reduce", "binomial", 8, 12, chunk=2, depth=2)
allreduce = make_schedule("allreduce", "chain", 4, 12, chunk=2, depth=2)
circle = make_schedule("allreduce", "ring", 4, 12, chunk=3, depth=3)
scattered = make_schedule("reduce_scatter", "halving", 5, 15, chunk=4)
gathered = make_schedule("allgather", "halving", 5, 15, chunk=4)

BROKEN: list[tuple[Schedule, int, Callable[[list[Step]], object], str]] = [
    (chain, 1, drop(StepKind.RECV_ADD), "sends"),
    (chain, 2, drop(StepKind.SEND), "sends"),
    (chain, 3, swap, r"step 0 sends \[2:4\] where step 0 receives \[0:2\]"),
    (chain, 3, change(StepKind.SEND, stop=1), r"sends \[0:1\] where step 0 receives \[0:2\]"),
    (chain, 3, change(StepKind.SEND, peer=1), "from rank 3 to rank"),
    (chain, 3, change(StepKind.SEND, tag=5), "tag"),
    (chain, 3, change(StepKind.SEND, 5, stop=13), "beyond the 12 elements"),
    (chain, 1, change(StepKind.RECV_ADD, 2, after=-1), "must wait for step 1"),
    (chain, 1, change(StepKind.RECV_ADD, 2, slot=1, target=1), "must wait for step 3"),
    (chain, 1, change(StepKind.RECV_ADD, after=0), "rank 1, step 0"),
    (chain, 1, change(StepKind.SEND, source=OWN), "the contribution of rank 2 0 times instead of 1"),
    (chain, 1, change(StepKind.SEND, 5, source=0), "the contribution of rank . to other elements"),
    (chain, 0, change(StepKind.RECV_ADD, source=OUT), "nothing that was ever written|1 times instead"),
    (binomial, 0, change(StepKind.RECV_ADD, 1, source=OWN), "the contribution of rank 1 0 times"),
    (binomial, 4, change(StepKind.RECV_ADD, 1, slot=0), "must wait for step 0"),
    (allreduce, 3, change(StepKind.RECV, after=-1), "must wait for step 0"),
    (allreduce, 2, drop(StepKind.RECV), "sends"),
    (circle, 1, swap, "sends|nothing|wait"),
    (scattered, 1, change(StepKind.SEND, source=OUT), "nothing that was ever written|0 times|other"),
    (gathered, 2, change(StepKind.SEND, start=5), "sends"),
]


@pytest.mark.parametrize(("schedule", "rank", "edit", "message"), BROKEN)
def test_a_broken_schedule_is_caught(
    schedule: Schedule, rank: int, edit: Callable[[list[Step]], object], message: str
) -> None:
    check(schedule)
    with pytest.raises(ScheduleError, match=message):
        check(edited(schedule, rank, edit))


def test_every_single_dropped_step_is_caught() -> None:
    for schedule in (chain, binomial, allreduce, circle, scattered, gathered):
        for rank in range(schedule.size):
            for i in range(len(schedule.rank(rank))):
                with pytest.raises(ScheduleError):
                    check(edited(schedule, rank, lambda steps, i=i: steps.pop(i)))


def test_every_forgotten_wait_is_caught() -> None:
    for schedule in (chain, binomial, circle, scattered):
        for rank in range(schedule.size):
            for i, step in enumerate(schedule.rank(rank)):
                if step.after >= 0:
                    with pytest.raises(ScheduleError, match="must wait"):
                        check(edited(schedule, rank, lambda s, i=i, t=step: s.__setitem__(i, t._replace(after=-1))))


def test_a_contribution_that_is_added_twice_is_caught() -> None:
    pair = make_schedule("reduce", "chain", 2, 3)
    again = Step(StepKind.RECV_ADD, 1, 0, 0, 3, source=OUT, target=OUT, slot=1)
    schedule = edited(edited(pair, 0, lambda s: s.append(again)), 1, lambda s: s.append(s[0]))
    with pytest.raises(ScheduleError, match="rank 0 has at 0 the contribution of rank 1 2 times instead of 1"):
        check(schedule)


def test_a_sum_written_over_what_is_being_sent_is_caught() -> None:
    """In place, a rank may put the sum over its contribution only when the other one has that."""

    def swap(after: int) -> Schedule:
        first = [Step(StepKind.SEND, 1, 0, 0, 3, OWN), Step(StepKind.RECV_ADD, 1, 0, 0, 3, OWN, OUT, slot=0, after=0)]
        add, send = Step(StepKind.RECV_ADD, 0, 0, 0, 3, OWN, target=0, slot=0), Step(StepKind.SEND, 0, 0, 0, 3, OWN)
        second = [add, send, Step(StepKind.COPY, -1, -1, 0, 3, source=0, target=OUT, after=after)]
        plan = Edited({0: first, 1: second})
        return replace(make_schedule("allreduce", "chain", 2, 3), steps=plan)

    check(swap(after=1))
    with pytest.raises(ScheduleError, match="rank 1, step 2 .* must wait for step 1"):
        check(swap(after=-1))


def test_ranks_that_all_wait_for_each_other_are_caught_and_named() -> None:
    schedule = make_schedule("allreduce", "chain", 2, 3)
    schedule = edited(schedule, 1, lambda s: s.insert(0, s.pop()._replace(after=-1)))
    with pytest.raises(
        ScheduleError, match="2 ranks wait forever: rank 0 for rank 1 to send tag 0; rank 1 for rank 0 to send tag 1"
    ):
        check(schedule)


def test_a_window_that_is_too_small_for_a_schedule_is_caught() -> None:
    schedule = make_schedule("reduce", "two-tree", 6, 60, chunk=2)
    check(schedule, InFlight(receives=2, sends=1))
    with pytest.raises(ScheduleError, match="wait forever"):
        check(schedule, InFlight(receives=1, sends=1))
