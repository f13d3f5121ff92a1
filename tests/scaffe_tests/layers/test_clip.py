"""Clip: y = min(max(x, min), max)."""

import numpy as np
import pytest
from gradient_check import OneLayer
from value_by_value import Case, each_check_of

from scaffe.errors import NetError


@each_check_of(Case('type: "Clip" clip_param { min: -0.5 max: 1 }', lambda x: min(max(x, -0.5), 1), factor=3.9))
def test_clip_holds_values_between_its_bounds(check, case):
    check(case)


def test_the_gradient_passes_at_the_bounds_and_not_beyond():
    it = OneLayer('type: "Clip" clip_param { min: -1 max: 1 }', [-1.5, -1.0, 1.0, 1.5])
    it.forward()
    np.testing.assert_array_equal(it.backward([2, 3, 4, 5])[0], [0, 3, 4, 0])


@pytest.mark.parametrize(
    ("fields", "message"),
    [("min: 2 max: 1", "min 2 above max 1"), ("min: 2", "clip_param needs max"), ("max: 2", "clip_param needs min")],
)
def test_bounds_that_are_missing_or_in_the_wrong_order_are_refused(fields, message):
    with pytest.raises(NetError, match=f"layer 'it'.*{message}"):
        OneLayer(f'type: "Clip" clip_param {{ {fields} }}', [1.0])
