"""16 instances on a few cores, disturbed by delays: their sums repeat, and an error in any phase ends all."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from itertools import count
from time import sleep

import numpy as np
import pytest

import scaffe.parallel.instances.gathers  # noqa: F401  registers the gathers
from scaffe.parallel.instances import gradient_sums
from scaffe.parallel.instances.crew import Crew
from scaffe.parallel.instances.gathers.gather import find_gather, registered
from scaffe.parallel.instances.gradient_sums import GradientSums
from scaffe.parallel.instances.places import Place

pytestmark = pytest.mark.mpi_skip
SIZE = 16
CORES = tuple(sorted(os.sched_getaffinity(0)))
PLACES = [Place(i, i * 2 // SIZE, (CORES[i % len(CORES)],)) for i in range(SIZE)]
LENGTHS = [5, 900, 7000, 1]
STARTS = np.cumsum([0, *LENGTHS])
PARTS = [slice(int(a), int(b)) for a, b in zip(STARTS, STARTS[1:], strict=False)]
GRADIENTS = np.random.default_rng(0).normal(size=(SIZE, STARTS[-1])).astype(np.float32)
FAILING = 11  # an instance
Step = Callable[[str, int], object]


class ItFailsError(Exception):
    """The error that an instance raises."""


def no_step(phase: str, instance: int) -> None:
    """Do nothing."""


class Iterations:
    """Iterations of 16 instances; `step(phase, instance)` is called in each phase."""

    def __init__(self, name: str, deterministic: bool = True):
        kind, number = find_gather(name)
        self.diffs = list(GRADIENTS.copy())
        self.step: Step = no_step
        made = kind([place.domain for place in PLACES], LENGTHS, number, deterministic)
        self.sums = GradientSums(made, self.diffs, PARTS, lambda bucket: self.step("summed", bucket))

    def run(self, crew: Crew, seed: int = 0) -> np.ndarray:
        """Run one iteration; return the sums."""
        for diff, gradients in zip(self.diffs, GRADIENTS, strict=True):
            diff[...] = gradients
        self.sums.begin()
        crew.run(lambda instance: self._work(instance, random.Random(100 * seed + instance)))
        return self.sums.result

    def _work(self, instance: int, draw: random.Random) -> None:
        self.step("forward", instance)
        for bucket in reversed(range(len(LENGTHS))):
            sleep(draw.choice((0, 0, 0.001)))  # disturbs the order; nothing depends on it
            self.sums.give(instance, bucket)
            self.step("backward", instance)
        self.sums.finish(instance)
        self.step("update", instance)


@pytest.fixture
def crew() -> Iterator[Crew]:
    with Crew(PLACES) as crew:
        yield crew


def assert_right(sums: np.ndarray) -> None:
    np.testing.assert_allclose(sums, GRADIENTS.astype(np.float64).sum(axis=0), atol=1e-5)


@pytest.mark.parametrize("name", [*registered(), "tree:3"])
def test_bits_repeat_over_20_iterations_with_delays(name: str, crew: Crew) -> None:
    iterations = Iterations(name)
    assert_right(first := iterations.run(crew).copy())
    for seed in range(1, 20):
        assert iterations.run(crew, seed).tobytes() == first.tobytes()


def test_a_server_that_is_not_deterministic_has_right_sums(crew: Crew) -> None:
    iterations = Iterations("server", deterministic=False)
    for seed in range(10):
        assert_right(iterations.run(crew, seed))


@pytest.mark.parametrize("name", registered())
@pytest.mark.parametrize("phase", ["forward", "backward", "summed", "update"])
def test_an_error_in_any_phase_ends_all(name: str, phase: str) -> None:
    iterations = Iterations(name)
    failing = 0 if phase == "summed" else FAILING  # a bucket, the last to be given; or an instance

    def step(now: str, who: int) -> None:
        if (now, who) == (phase, failing):
            raise ItFailsError(phase)

    with Crew(PLACES, iterations.sums.break_off) as crew:
        iterations.step = step
        with pytest.raises(ItFailsError, match=phase):
            iterations.run(crew)
        iterations.step = no_step
        assert_right(iterations.run(crew))


@pytest.mark.parametrize("name", registered())
def test_an_error_in_an_addition_ends_all(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    iterations, calls, add = Iterations(name), count(), gradient_sums.add

    def fails_once(*arrays: np.ndarray) -> None:
        if next(calls) == 3:
            raise ItFailsError("addition")
        add(*arrays)

    with Crew(PLACES, iterations.sums.break_off) as crew:
        monkeypatch.setattr(gradient_sums, "add", fails_once)
        with pytest.raises(ItFailsError, match="addition"):
            iterations.run(crew)
        assert_right(iterations.run(crew))


@pytest.mark.parametrize("name", registered())
def test_an_error_of_a_sums_receiver_ends_all_waits_without_a_crew_that_passes_it_on(name: str, crew: Crew) -> None:
    """The bucket that is given first fails, so that all instances still have others to give or to wait for."""
    iterations = Iterations(name)

    def step(now: str, who: int) -> None:
        if (now, who) == ("summed", len(LENGTHS) - 1):
            raise ItFailsError("summed")

    iterations.step = step
    with pytest.raises(ItFailsError, match="summed"):
        iterations.run(crew)
    assert not iterations.sums.gather.is_complete
