"""What Instances leave to "auto": the fastest is taken where it is slowest, whatever ranks' clocks say."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.instances.trial import InstancesTrial

pytestmark = pytest.mark.mpi_skip

Clock = Callable[[Instances], float]


def run(given: Instances, ours: Clock, theirs: Clock, counts: dict[str, list[int]]) -> tuple[InstancesTrial, list, str]:
    """Return the trial after all its iterations, what each iteration had, and the message.

    Both ranks run alike, since both get what `gather` returns; the other one's seconds are made up from its clock.
    """
    used: list[Instances] = []

    def gather(mine: list[float]) -> list[list[float]]:
        return [mine, [theirs(used[-1])] * len(mine)]

    trial = InstancesTrial(given, counts, ["slices", "tree:2"], gather)
    said = ""
    while not trial.is_over:
        assert not said
        used.append(trial.present)
        said = trial.took(ours(trial.present))
    return trial, used, said


def by(field: str, seconds: dict[str, float]) -> Clock:
    return lambda present: seconds[getattr(present, field)]


NUMBERS = {"1": [1, 1], "numa": [2, 2], "core": [4, 8]}


def test_the_slowest_rank_decides_and_the_line_has_all_times() -> None:
    given = Instances("auto", gather="slices")
    ours, theirs = {"1": 0.3, "numa": 0.1, "core": 0.1}, {"1": 0.1, "numa": 0.4, "core": 0.2}
    trial, used, said = run(given, by("n", ours), by("n", theirs), NUMBERS)
    assert trial.present == Instances("core", gather="slices", launch_delay="0")
    assert [one.n for one in used] == [n for n in NUMBERS for _ in range(InstancesTrial.ITERATIONS)]
    assert said == (
        "Instances: 4 to 8 (core), gather slices, the fastest in the first iterations "
        "(1: 300 ms, 2 (numa): 400 ms, 4 to 8 (core): 200 ms, on the slowest rank)"
    )


def test_the_first_iteration_of_each_and_a_single_slow_one_do_not_count() -> None:
    seconds = iter([9.0, 1.0, 1.0, 9.0, 1.0, 1.0] + [0.1, 2.0, 2.0, 0.1, 2.0, 2.0])
    trial, _, said = run(
        Instances("auto", gather="slices"), lambda _: next(seconds), lambda _: 0.0, {"1": [1], "2": [2]}
    )
    assert trial.present.n == "1"
    assert "1: 1000 ms, 2: 2000 ms" in said


def test_the_gather_is_timed_with_the_number_taken_and_then_the_delay() -> None:
    def clock(present: Instances) -> float:
        late = {"0": 0.0, "0.01": 0.02, "0.02": -0.04, "0.04": 0.03}[present.launch_delay]
        return {"1": 1.0, "4": 0.5}[present.n] - (0.02 if present.gather == "tree:2" else 0) + late

    given = Instances("auto", launch_groups=4, launch_delay="auto")
    trial, used, said = run(given, clock, lambda _: 0.0, {"1": [1, 1], "4": [4, 4]})
    assert trial.present == Instances("4", gather="tree:2", launch_groups=4, launch_delay="0.02")
    assert [used[k] for k in range(0, len(used), InstancesTrial.ITERATIONS)] == [
        Instances(n, gather, 4, delay)
        for n, gather, delay in [
            ("1", "slices", "0"),
            ("4", "slices", "0"),
            ("4", "slices", "0"),
            ("4", "tree:2", "0"),
            ("4", "tree:2", "0"),
            ("4", "tree:2", "0.01"),  # the last of 4 groups starts after 1/16 of 0.48 s, then 1/8, 1/4
            ("4", "tree:2", "0.02"),
            ("4", "tree:2", "0.04"),
        ]
    ]
    assert said.startswith("Instances: 4, gather tree:2, launch delay 0.02 s, the fastest")
    assert "gather slices: 500 ms, gather tree:2: 480 ms; launch delay 0 s: 480 ms, launch delay 0.01 s" in said


def test_where_one_instance_is_fastest_nothing_is_gathered_or_delayed() -> None:
    given = Instances("auto", launch_groups=2, launch_delay="auto")
    trial, used, said = run(given, by("n", {"1": 1.0, "2": 2.0}), lambda _: 0.0, {"1": [1], "2": [2]})
    assert trial.present.n == "1" and len(used) == 2 * InstancesTrial.ITERATIONS
    assert said.startswith("Instances: 1, the fastest in the first iterations (1: 1000 ms, 2: 2000 ms")


@pytest.mark.parametrize(
    ("given", "counts"),
    [
        (Instances("auto"), {"1": [1, 1]}),  # no other number is possible
        (Instances(4, gather="server"), {"4": [4, 4]}),
        (Instances(4, gather="server", launch_delay="auto"), {"4": [4, 4]}),  # of one launch group
        (Instances("numa"), {"numa": [1, 1]}),  # which is one
    ],
)
def test_there_is_no_trial_where_there_is_no_choice(given: Instances, counts: dict[str, list[int]]) -> None:
    trial, used, said = run(given, lambda _: 0.0, lambda _: 0.0, counts)
    assert not used and not said and not trial.took(1.0)
    assert "auto" not in (trial.present.n, trial.present.gather, trial.present.launch_delay)
