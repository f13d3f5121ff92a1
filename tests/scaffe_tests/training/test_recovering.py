"""Recovery: the state that counts, what is done again, and where the ranks that are left may not go on."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from collectives import RankLostError
from scaffe.errors import RanksLostError
from scaffe.parallel.run import Run
from scaffe.training.parts import Parts
from scaffe.training.recovery.phase import Phase
from scaffe.training.recovery.ranks_left import FalseAlarms, check_left
from scaffe.training.recovery.rollback import Rollback
from scaffe.training.recovery.shrink import Shrink
from scaffe.training.recovery.state import Mark, Outcome, State, agreed, furthest

SHRINKS = Run(on_rank_loss="shrink", min_ranks=2)


def state(done: int = 4, has_state: bool = True, **fields) -> State:
    """Return the state of a rank that has done so many iterations."""
    given = {"requests": frozenset(), "begun": done, "calls": False, "outcome": None, "mirrored": -1} | fields
    given = {"told": done, "outputs": {}} | given
    return State(done=done, handled=done, tested=-1, tests_done=0, losses=(), stopped="", has_state=has_state, **given)


def decided(*states: State) -> tuple[int, State]:
    """Return what ranks of these states agree on."""
    source = furthest(states)
    return source, agreed(states[source], states)


@pytest.mark.parametrize(
    ("states", "source"),
    [
        ([state(4), state(5), state(5)], 1),
        ([state(5, False), state(4), state(4)], 1),
        ([state(4), state(5, False)], 0),
    ],
)
def test_the_lowest_of_the_ranks_that_are_furthest_counts_if_it_has_the_state(states, source) -> None:
    assert decided(*states)[0] == source


def test_requests_and_callbacks_of_all_ranks_count_but_the_iterations_of_one() -> None:
    others = [state(4, requests=frozenset({"stop"}), calls=True, begun=6), state(4, requests=frozenset({"snapshot"}))]
    found = decided(state(4), *others)[1]
    assert (found.requests, found.calls, found.begun) == ({"stop", "snapshot"}, True, 4)


def test_without_the_state_no_part_is_finished() -> None:
    assert decided(state(4, outcome=Outcome()))[1].outcome
    assert not decided(state(4, has_state=False, outcome=Outcome()))[1].outcome


@pytest.mark.parametrize(("newest", "taken"), [(None, True), (2, True), (3, True), (4, False), (5, False), (9, True)])
def test_a_mirror_is_taken_unless_a_snapshot_of_this_run_is_newer(newest, taken) -> None:
    world = SimpleNamespace(bcast=lambda about, source: about, is_root=False)
    mark = Mark(3, [36], 3, np.zeros(0), ())
    mirror = SimpleNamespace(kept=SimpleNamespace(about=(state(3), mark)))
    path = newest and f"snap_iter_{newest}.solverstate"
    shrink = Shrink(world, SHRINKS)
    shrink.parts, shrink.checkpoints = SimpleNamespace(mirror=mirror), SimpleNamespace(newest_own=lambda: path)
    shrink.rollback = SimpleNamespace(mark="own")
    found = shrink._mirrored([state(5, False), state(5, False, mirrored=3)])
    assert (found is not None) is taken
    assert not found or found[1].begun == 5  # what is redone counts from the lost root's iteration
    assert shrink.rollback.mark == (mark if taken else "own")


@pytest.mark.parametrize(
    ("others", "is_everywhere"),
    [
        ([state(4), state(4)], True),
        ([state(4), state(3)], False),
        ([state(4), state(4, False)], False),
        ([state(4), state(4, stale=True)], False),
    ],
)
def test_the_state_is_shared_unless_all_ranks_have_it(others, is_everywhere) -> None:
    assert decided(state(4), *others)[1].is_everywhere is is_everywhere


def test_an_iteration_in_which_a_rank_was_lost_is_not_done() -> None:
    world = SimpleNamespace(misses_any=lambda: True)
    parts = SimpleNamespace(job=SimpleNamespace(run=SHRINKS, world=world, iter=4))
    parts.workflow = SimpleNamespace(early=True)  # its updates precede the last messages
    parts.check_sums = lambda: Parts.check_sums(parts)
    rollback = Rollback(parts.job, parts)
    rollback.done, rollback.is_whole = 4, False
    with pytest.raises(RankLostError):
        rollback.end_iteration()
    assert (rollback.done, rollback.is_whole) == (4, False)
    world.misses_any = lambda: False
    rollback.end_iteration()
    assert (rollback.done, rollback.is_whole) == (5, True)


@pytest.mark.parametrize(("finished", "times"), [(True, 1), (False, 2)])
def test_a_part_is_done_again_unless_the_state_that_counts_has_it(finished, times) -> None:
    done, attempts = [], iter([False, True])

    def attempt(work, break_off):
        work()
        return next(attempts)

    def recover():
        assert shrink.phase is Phase.PART
        shrink._outcome = Outcome("of the others") if finished else None

    world = SimpleNamespace(attempt=attempt, misses_any=lambda: False)
    shrink = Shrink(world, SHRINKS)
    result = shrink._again(lambda: done.append(1), recover, Phase.PART)
    assert len(done) == times and result == ("of the others" if finished else None)
    assert shrink.phase is Phase.BETWEEN


@pytest.mark.parametrize(
    ("size", "lost", "is_cut_off", "ends"),
    [(3, [1], True, True), (2, [1], False, False), (1, [1], False, True), (1, [], False, False)],
)
def test_ranks_that_are_too_few_or_cut_off_end(size, lost, is_cut_off, ends) -> None:
    world = SimpleNamespace(size=size, lost=lost, is_cut_off=is_cut_off, waiting_spares=0)
    if ends:
        with pytest.raises(RanksLostError):
            check_left(world, SHRINKS)
    else:
        check_left(world, SHRINKS)


@pytest.mark.parametrize(
    ("was_root", "joined", "has_all", "expected"),
    [
        (True, True, False, True),
        (False, True, False, False),  # rank 0 now, in the place of the root that was lost
        (False, False, False, False),  # a spare in the root's place
        (False, True, True, True),
    ],
)
def test_the_rank_that_was_the_root_has_the_state_however_ranks_are_numbered_now(
    was_root, joined, has_all, expected
) -> None:
    given = {"handled": 4, "tested": -1, "tests_done": 0, "stopped": "", "told": 4, "outputs": {}, "granted": set()}
    shrink = Shrink(SimpleNamespace(is_root=not was_root), SHRINKS)
    shrink.job = SimpleNamespace(**given, auto_instances=SimpleNamespace(settled=None))
    losses, propagate = SimpleNamespace(last=(), requests=set()), SimpleNamespace(stale=False)
    shrink.parts = SimpleNamespace(losses=losses, propagate=propagate, mirror=None, called=None)
    shrink.rollback = SimpleNamespace(done=4, begun=4, losses=())
    shrink.was_root, shrink.has_all, shrink.phase = was_root, has_all, Phase.RECOVERY if joined else Phase.JOINING
    assert shrink.state().has_state is expected


def test_what_any_rank_has_displayed_of_the_iteration_that_counts_is_not_displayed_again() -> None:
    assert decided(state(4, told=3), state(4, told=4))[1].told == 4
    assert decided(state(5, told=4), state(4, told=4))[1].told == 4


def test_a_fourth_loss_of_no_rank_ends_the_run() -> None:
    alarms, world = FalseAlarms(), SimpleNamespace(noticed="a socket")
    for _ in range(3):
        alarms.check(world)
    with pytest.raises(RanksLostError, match="MPI reported a lost rank 4 times, but none is lost"):
        alarms.check(world)


def test_a_rank_breaks_off_all_that_is_under_way() -> None:
    ended: set[str] = set()

    def part(name: str, method: str) -> SimpleNamespace:
        return SimpleNamespace(**{method: lambda: ended.add(name)})

    shrink = Shrink(part("world", "revoke"), SHRINKS)
    shrink.world.gpu = part("gpu", "finish")
    shrink.parts, shrink._has_parts = Parts.__new__(Parts), True
    shrink.parts.collectives, shrink.parts.mirror = part("collectives", "revoke"), part("mirror", "break_off")
    shrink.parts.trial = SimpleNamespace(workflows=[part("hook", "break_off"), part("helper", "break_off")])
    shrink.break_off()
    assert ended == {"world", "collectives", "gpu", "mirror", "hook", "helper"}
