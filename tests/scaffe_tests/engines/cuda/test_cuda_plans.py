"""cuDNN has plans for the graphs that scaffe makes, as it says itself of GPUs that are described to it."""

from itertools import product

import deviceless_cudnn
import pytest

from scaffe.engines.cuda.cudnn import CORRELATE, FIRST, LAST, NO_EPILOGUE, SPREAD, WEIGH, Epilogue, Problem
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


def names(
    library, what, one, layout, after=NO_EPILOGUE, limit=float("inf"), compute="float32", by_groups=False, **more
):
    """Return the names of the plans for a pass that can be built and have room."""
    problem = Problem(**PLAIN | PROBLEMS[what], compute=compute, **more)
    problem = problem.of_a_group if by_groups else problem
    return [kernel.name for kernel in fitting(library.kernels(problem, one, layout, after), limit)]


@pytest.mark.parametrize("what", PROBLEMS)
def test_every_pass_of_float32_has_plans_even_where_results_are_to_repeat(library, what):
    for one, layout in product((CORRELATE, SPREAD, WEIGH), (FIRST, LAST)):
        assert names(library, what, one, layout, repeats=True), (one.name, layout)


@pytest.mark.parametrize("compute", ["tf32", "bf16"])
def test_every_pass_of_other_numbers_has_plans_where_the_gpu_has_such_numbers(gpu, library, compute):
    for what, one in product(PROBLEMS, (CORRELATE, SPREAD, WEIGH)):
        has = bool(names(library, what, one, LAST, compute=compute))
        assert has == (compute == "tf32" or gpu != "T4"), (what, one.name)


@pytest.mark.parametrize(
    "after", [Epilogue(bias=True), Epilogue(bias=True, relu=True)], ids=lambda after: str(after)[5:]
)
def test_a_bias_and_a_relu_are_computed_by_plans_of_the_forward_pass(gpu, library, after):
    assert names(library, "a middle layer", CORRELATE, FIRST, after)
    assert names(library, "a middle layer", CORRELATE, LAST, after)
    if gpu != "T4":
        assert names(library, "a middle layer", CORRELATE, LAST, after, compute="bf16")
    assert list(names(library, "a middle layer", SPREAD, FIRST, Epilogue(bias=True))) == []


@pytest.mark.parametrize("one", [CORRELATE, SPREAD, WEIGH], ids=lambda one: one.name)
def test_a_group_of_channels_and_a_part_of_a_concatenation_are_slices_that_plans_take(gpu, library, one):
    if gpu == "T4":
        pytest.skip("no bfloat16")
    assert names(library, "groups", one, LAST, compute="bf16", by_groups=True)
    for after in (NO_EPILOGUE, Epilogue(bias=True), Epilogue(bias=True, relu=True))[: 3 if one is CORRELATE else 1]:
        assert names(library, "a middle layer", one, LAST, after, compute="bf16", images_pitch=128, maps_pitch=480)


def test_a_workspace_that_is_too_small_leaves_fewer_plans(library):
    every = names(library, "a middle layer", WEIGH, FIRST)
    few = names(library, "a middle layer", WEIGH, FIRST, limit=0)
    assert few and set(few) < set(every)


def test_what_was_asked_for_bounds_the_plans(library):
    strict, tf32 = (names(library, "a middle layer", WEIGH, FIRST, compute=one) for one in ("float32", "tf32"))
    repeatable = names(library, "a middle layer", WEIGH, FIRST, repeats=True)
    assert set(repeatable) < set(strict) <= set(tf32)
