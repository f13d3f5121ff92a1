from __future__ import annotations

from collectives.schedules.algorithms import make_schedule
from collectives.schedules.schedule import OUT, OWN, StepKind
from collectives.schedules.tree_steps import DOWN, LANES, UP, TreeSteps


def test_ranks_of_the_order_take_the_places_of_virtual_ranks() -> None:
    schedule = make_schedule("reduce", "chain", 4, 1, root=2, order=[2, 0, 3, 1])
    assert [schedule.rank(rank)[-1].peer for rank in (1, 3, 0)] == [3, 0, 2]


def test_a_rank_adds_its_children_s_chunks_nearest_first_and_sends_the_sum_up() -> None:
    steps = make_schedule("reduce", "binomial", 8, 4, chunk=4).rank(4)
    assert [(step.kind, step.peer) for step in steps] == [
        (StepKind.RECV_ADD, 5), (StepKind.RECV_ADD, 6), (StepKind.SEND, 0),
    ]  # fmt: skip
    assert steps[0].source == OWN and steps[1].source == steps[0].target == steps[1].target == steps[2].source >= 0
    assert {step.target for step in make_schedule("reduce", "binomial", 8, 4).rank(0)} == {OUT}


def test_a_broadcast_goes_first_to_the_child_with_most_ranks_below_it() -> None:
    steps = make_schedule("bcast", "binomial", 8, 4, chunk=2).rank(0)
    assert [(step.peer, step.start) for step in steps] == [(4, 0), (2, 0), (1, 0), (4, 2), (2, 2), (1, 2)]


def test_each_tree_has_its_part_of_the_data_and_tags_of_its_own() -> None:
    schedule = make_schedule("allreduce", "two-tree", 4, 10, chunk=3)
    assert isinstance(schedule.steps, TreeSteps)
    assert [schedule.steps.slices(lane) for lane in (0, 1)] == [[(0, 3), (3, 5)], [(5, 8), (8, 10)]]
    for rank in range(4):
        for step in schedule.rank(rank):
            lane = int(step.start >= 5)
            assert step.tag in (LANES * lane + UP, LANES * lane + DOWN)


def test_one_rank_alone_copies_its_data() -> None:
    (step,) = make_schedule("reduce", "chain", 1, 7).rank(0)
    assert (step.kind, step.start, step.stop) == (StepKind.COPY, 0, 7)
    assert make_schedule("bcast", "chain", 1, 7).rank(0) == make_schedule("reduce", "chain", 1, 0).rank(0) == []
