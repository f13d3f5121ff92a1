"""cuDNN has plans for the graphs that scaffe makes, as it says itself of GPUs that are described to it."""

from itertools import product

import deviceless_cudnn
import pytest

from scaffe.engines.cuda.cudnn import CORRELATE, FIRST, LAST, SPREAD, WEIGH, Problem
from scaffe.engines.cuda.kernel_choice import fitting

PLAIN = {"stride": (1, 1), "pad": (1, 1), "dilation": (1, 1)}
PROBLEMS = {
    "a middle layer": {"images": (32, 64, 28, 28), "maps": (32, 96, 28, 28), "weights": (96, 64, 3, 3)},
    "a first layer": {"images": (64, 3, 227, 227), "maps": (64, 96, 55, 55), "weights": (96, 3, 11, 11),
                      "stride": (4, 4), "pad": (0, 0)},
    "groups": {"images": (16, 96, 27, 27), "maps": (16, 256, 27, 27), "weights": (256, 48, 5, 5), "pad": (2, 2)},
    "dilation": {"images": (2, 3, 9, 9), "maps": (2, 5, 9, 9), "weights": (5, 3, 3, 3), "pad": (2, 2),
                 "dilation": (2, 2)},
    "one axis": {"images": (2, 3, 1, 9), "maps": (2, 4, 1, 4), "weights": (4, 3, 1, 3), "stride": (1, 2),
                 "pad": (0, 0)},
    "three axes": {"images": (2, 3, 8, 8, 8), "maps": (2, 4, 8, 8, 8), "weights": (4, 3, 3, 3, 3),
                   "stride": (1,) * 3, "pad": (1,) * 3, "dilation": (1,) * 3},
}  # fmt: skip


@pytest.fixture(scope="module", params=deviceless_cudnn.DESCRIBED)
def gpu(request):
    return request.param


@pytest.fixture(scope="module")
def library(gpu):
    return deviceless_cudnn.library(gpu)


def names(library, what, one, layout, biased=False, limit=float("inf"), compute="float32", repeats=False):
    """Return the names of the plans for a pass that can be built and have room."""
    problem = Problem(**PLAIN | PROBLEMS[what], compute=compute, repeats=repeats)
    return [kernel.name for kernel in fitting(library.kernels(problem, one, layout, biased), limit)]


@pytest.mark.parametrize("what", PROBLEMS)
def test_every_pass_of_float32_has_plans_even_where_results_are_to_repeat(library, what):
    for one, layout in product((CORRELATE, SPREAD, WEIGH), (FIRST, LAST)):
        assert names(library, what, one, layout, repeats=True), (one.name, layout)


@pytest.mark.parametrize("compute", ["tf32", "bf16"])
def test_every_pass_of_other_numbers_has_plans_where_the_gpu_has_such_numbers(gpu, library, compute):
    for what, one in product(PROBLEMS, (CORRELATE, SPREAD, WEIGH)):
        has = bool(names(library, what, one, LAST, compute=compute))
        assert has == (compute == "tf32" or gpu != "T4"), (what, one.name)


def test_a_bias_is_added_by_plans_of_the_forward_pass(gpu, library):
    assert names(library, "a middle layer", CORRELATE, FIRST, biased=True)
    assert names(library, "a middle layer", CORRELATE, LAST, biased=True)
    if gpu != "T4":
        assert names(library, "a middle layer", CORRELATE, LAST, biased=True, compute="bf16")
    assert list(names(library, "a middle layer", SPREAD, FIRST, biased=True)) == []


def test_a_workspace_that_is_too_small_leaves_fewer_plans(library):
    every = names(library, "a middle layer", WEIGH, FIRST)
    few = names(library, "a middle layer", WEIGH, FIRST, limit=0)
    assert few and set(few) < set(every)


def test_what_was_asked_for_bounds_the_plans(library):
    strict, tf32 = (names(library, "a middle layer", WEIGH, FIRST, compute=one) for one in ("float32", "tf32"))
    repeatable = names(library, "a middle layer", WEIGH, FIRST, repeats=True)
    assert set(repeatable) < set(strict) <= set(tf32)
