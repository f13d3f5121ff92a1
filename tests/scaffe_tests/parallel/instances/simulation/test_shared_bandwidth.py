"""Programs that share bandwidth: against times and shares worked out by hand or by bisection."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.parallel.instances.simulation.events import Load, fair_share, run

INFINITE = float("inf")


def together(*programs, pools=None, bandwidths=(10.0,)):
    return run([iter(program) for program in programs], pools or [0] * len(programs), bandwidths)


def test_a_program_alone_takes_the_sum_of_its_loads() -> None:
    used = together([Load(2.0, 20.0), Load(0.5), Load(0.0, 1.0), Load(1.0, 3.0)])
    assert used.total == pytest.approx(3.5)
    assert used.moved == pytest.approx(23.0)
    assert used.mean(used.cores) == pytest.approx(1.0)


@pytest.mark.parametrize("n", [1, 2, 5, 7])
def test_without_a_limit_programs_do_not_slow_each_other(n: int) -> None:
    assert together(*[[Load(2.0, 1e9)] * 3] * n, bandwidths=[INFINITE]).total == pytest.approx(6.0)


@pytest.mark.parametrize("n", [1, 2, 5, 7])
def test_where_one_core_uses_all_bandwidth_n_programs_take_n_times_as_long(n: int) -> None:
    used = together(*[[Load(2.0, 20.0)] * 3] * n)
    assert used.total == pytest.approx(6.0 * n)
    assert max(used.bandwidth) == pytest.approx(10.0)
    assert used.mean(used.cores) == pytest.approx(1.0)


def test_what_a_load_does_not_use_is_left_to_the_others() -> None:
    # Demands of 2, 9 and 9 a second: 2, 4 and 4 are granted, and the two others take 9/4 of their seconds.
    used = together([Load(10.0, 20.0)], [Load(1.0, 9.0)], [Load(1.0, 9.0)])
    assert used.seconds == pytest.approx([9 / 4, 10 - 9 / 4])
    assert used.bandwidth == pytest.approx([10.0, 2.0])


def test_bandwidth_is_shared_by_cores() -> None:
    # 3 of 4 cores have 7.5 of 10 bytes a second, so that 15 bytes take 2 seconds. The other then has 5 bytes left.
    used = together([Load(1.0, 15.0, 3)], [Load(2.0, 10.0, 1)])
    assert used.seconds == pytest.approx([2.0, 1.0])


def test_each_pool_has_its_own_bandwidth() -> None:
    used = together([Load(1.0, 10.0)], [Load(1.0, 10.0)], pools=[0, 1], bandwidths=[10.0, 5.0])
    assert used.seconds == pytest.approx([1.0, 1.0])
    assert used.bandwidth == pytest.approx([15.0, 5.0])


def test_programs_wait_for_conditions() -> None:
    done = []

    def first():
        yield Load(3.0)
        done.append(1)

    def second():
        yield Load(1.0)
        yield lambda: bool(done)
        yield Load(2.0)

    used = together(first(), second())
    assert used.total == pytest.approx(5.0)
    assert used.mean(used.cores) == pytest.approx(6 / 5)


def test_programs_that_wait_for_each_other_are_an_error() -> None:
    with pytest.raises(RuntimeError, match="2 of 3 simulated instances wait"):
        together([Load(1.0)], [lambda: False], [lambda: False])


@pytest.mark.parametrize("seed", range(20))
def test_fair_shares_use_up_the_bandwidth(seed: int) -> None:
    random = np.random.default_rng(seed)
    demands, cores = random.exponential(1.0, 9), random.integers(1, 5, 9).astype(float)
    bandwidth = demands.sum() * random.uniform(0.05, 0.99)
    low, high = 0.0, float((demands / cores).max())
    for _ in range(100):
        level = (low + high) / 2
        low, high = (level, high) if np.minimum(demands, level * cores).sum() < bandwidth else (low, level)
    assert fair_share(demands, cores, bandwidth) == pytest.approx(low)


@pytest.mark.parametrize("seed", range(5))
def test_work_and_bytes_are_conserved(seed: int) -> None:
    random = np.random.default_rng(seed)
    programs = [
        [Load(*random.exponential((1.0, 20.0)), int(random.integers(1, 4))) for _ in range(9)] for _ in range(6)
    ]
    used = together(*programs, pools=[0, 0, 0, 1, 1, 1], bandwidths=[7.0, 30.0])
    loads = [load for program in programs for load in program]
    assert used.moved == pytest.approx(sum(load.moved for load in loads))
    assert used.mean(used.cores) * used.total == pytest.approx(sum(load.seconds * load.cores for load in loads))
    assert max(used.bandwidth) <= 37.0 * (1 + 1e-9)
