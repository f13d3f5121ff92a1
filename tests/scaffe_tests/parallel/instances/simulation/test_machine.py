"""A machine's sizes of instances, and the values that it refuses."""

from __future__ import annotations

import pytest

from scaffe.errors import ScaffeError
from scaffe.parallel.instances.simulation.machine import Machine


@pytest.mark.parametrize(
    ("cores", "domains", "sizes"),
    [
        (1, 1, [1]),
        (2, 1, [1, 2]),
        (56, 2, [1, 2, 4, 7, 14, 28, 56]),
        (24, 4, [1, 2, 3, 6, 12, 24]),
        (6, 3, [1, 2, 6]),
    ],
)
def test_sizes_divide_a_domain_or_all_domains(cores: int, domains: int, sizes: list[int]) -> None:
    assert Machine(cores=cores, domains=domains).sizes() == sizes


def test_an_instance_covers_whole_domains_once_it_is_larger() -> None:
    machine = Machine(cores=16, domains=4)
    assert [machine.covered(x) for x in (1, 2, 4, 8, 16)] == [1, 1, 1, 2, 4]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cores": 0}, "0 cores can't be divided over 2 domains"),
        ({"cores": 7}, "7 cores can't be divided over 2 domains"),
        ({"domains": 0}, "56 cores can't be divided over 0 domains"),
        ({"cores": 10**15}, "cores must be 1000000 or fewer, got 1000000000000000"),
        ({"bandwidth": 0.0}, "bandwidth must be from 1 to inf, got 0"),
        ({"bandwidth": 1e-300}, "bandwidth must be from 1 to inf, got 1e-300"),
        ({"link": float("nan")}, "link must be from 1 to inf, got nan"),
        ({"barrier": -1.0}, "barrier must be from 0 to 1, got -1"),
        ({"barrier": 1e9}, "barrier must be from 0 to 1, got 1e+09"),
        ({"jitter": float("inf")}, "jitter must be from 0 to 1, got inf"),
        ({"jitter": 10.0}, "jitter must be from 0 to 1, got 10"),
        ({"core_gflops": -2.0}, "core_gflops must be from 1e-06 to 1e+09, got -2"),
        ({"core_gflops": 0.0}, "core_gflops must be from 1e-06 to 1e+09, got 0"),
        ({"core_bandwidth": 0.0}, "core_bandwidth must be from 1 to 1e+18, got 0"),
    ],
)
def test_values_that_no_machine_has_are_refused(given: dict[str, float], message: str) -> None:
    with pytest.raises(ScaffeError) as caught:
        Machine(**given)  # type: ignore[arg-type]
    assert str(caught.value) == message
