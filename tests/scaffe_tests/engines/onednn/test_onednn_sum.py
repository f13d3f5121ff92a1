"""SumPrimitive: one pass over any number of operands, added from left to right."""

from functools import reduce

import numpy as np
import pytest
from both_engines import needs_onednn

from scaffe.blob import Blob
from scaffe.engines.onednn import Onednn
from scaffe.engines.onednn.sum import MOST, SumPrimitive, best_layout, can_rectify

pytestmark = needs_onednn

SHAPE = (2, 32, 3, 5)


def summed(count, slope=None, layout="blocked"):
    """Return the sum of random blobs by oneDNN, that by numpy, and the kernels' runs."""
    engine, runs, ones = Onednn(), [], [1.0] * count
    desc = best_layout(engine, engine.blocked(SHAPE)[0] if layout == "blocked" else engine.channels_last(SHAPE), ones)
    blobs, rng = [Blob(SHAPE) for _ in ones], np.random.default_rng(count)
    for blob in blobs:
        blob.data[...] = rng.standard_normal(SHAPE)
    total = SumPrimitive(engine, desc, ones, slope)
    engine.watcher = runs.append
    result = np.empty(SHAPE, np.float32)
    total.of([blob.values for blob in blobs]).store(result)
    return result, reduce(np.add, [blob.data for blob in blobs]), [run for run in runs if run.operation != "reorder"]


@pytest.mark.parametrize("layout", ["blocked", "last"])
@pytest.mark.parametrize("count", [2, 3, 5, MOST])
def test_sums_have_the_bits_of_additions_from_left_to_right(count, layout):
    result, expected, _ = summed(count, layout=layout)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("count", [2, 3, MOST])
def test_a_relu_is_part_of_the_pass(count):
    result, expected, runs = summed(count, slope=0.25)
    np.testing.assert_array_equal(result, np.where(expected > 0, expected, np.float32(0.25) * expected))
    assert [run.operation for run in runs] == ["binary"]


def test_a_sum_moves_each_operand_and_the_result_once():
    *_, runs = summed(4, layout="last")
    assert [run.nbytes for run in runs] == [5 * 4 * np.prod(SHAPE)]


@pytest.mark.parametrize("coeffs", [[1], [1, -1], [1, 1, 0.5], [1] * (MOST + 1)])
def test_what_is_no_plain_addition_is_not_rectified(coeffs):
    assert not can_rectify(coeffs)
