"""Which kernels are timed: those that compute what the reference does, and pass NaN on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from scaffe.engines.cuda.kernel_choice import MOST, Agreement, choose, time
from scaffe.errors import CudnnError

EXPECTED = np.linspace(0.5, 2, 8).astype(np.float32)


@dataclass
class Described:
    """A kernel that adds 1 to its operand."""

    name: str
    variant: int = 0
    nbytes: int = 0
    builds: bool = True

    def build(self) -> bool:
        return self.builds


class Bench:
    """The operand and result of one pass, and how kernels compute it, by name; "fails" can't run."""

    def __init__(self) -> None:
        self.operand, self.result = EXPECTED - 1, np.empty_like(EXPECTED)
        self.agreement = Agreement(np, self.result, EXPECTED, 1e-5, list, self.operand)

    def runner(self, kernel: Described) -> Callable[[], None]:
        def run() -> None:
            if kernel.name == "fails":
                raise CudnnError("cannot run")
            self.result[...] = self.operand + (1.01 if kernel.name == "wrong" else 1)
            if kernel.name == "hides":  # as a ReLU that makes NaN 0
                self.result[np.isnan(self.result)] = 0
            if kernel.name == "leaves":
                self.result[...] = np.nan

        return run

    def time(self, *kernels: Described, limit: float = 100) -> list[str]:
        return [*time(kernels, limit, self.runner, lambda run: 1.0, self.agreement)]


@pytest.mark.parametrize("bad", ["wrong", "hides", "leaves", "fails"])
def test_a_kernel_that_is_wrong_hides_nan_or_fails_is_left_out(bad: str) -> None:
    bench = Bench()
    kept = bench.operand.copy()
    assert bench.time(Described(bad), Described("right"), Described("too large", nbytes=101)) == ["right"]
    assert bench.agreement.wrong == (bad in ("wrong", "leaves"))
    np.testing.assert_array_equal(bench.operand, kept)


def test_of_a_variant_as_many_are_timed_and_of_a_name_the_first() -> None:
    many = [Described(f"k{i}") for i in range(MOST + 1)]
    found = Bench().time(*many, Described("k1", 1), Described("other", 1))
    assert found == [f"k{i}" for i in range(MOST)] + ["other"]


def test_the_named_kernel_is_chosen_where_it_fits_else_the_first_that_does() -> None:
    kernels = [Described("broken", builds=False), Described("large", nbytes=200), Described("a"), Described("b")]
    for name, expected in (("b", "b"), ("large", "a"), ("unknown", "a"), ("", "a")):
        found = choose(iter(kernels), name, 100)
        assert found is not None and found.name == expected
    assert choose(kernels[:2], "", 100) is None
