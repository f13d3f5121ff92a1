"""ReLU6: y = min(max(x, 0), 6)."""

import numpy as np
from gradient_check import OneLayer
from value_by_value import Case, each_check_of


@each_check_of(
    Case('type: "ReLU6"', lambda x: min(max(x, 0), 6), factor=19),
    Case('type: "ReLU6" relu6_param { negative_slope: 0.125 }', lambda x: min(max(x, 0.125 * x), 6), factor=19),
)
def test_relu6_limits_what_relu_gives(check, case):
    check(case)


def test_the_gradient_is_0_at_both_bounds():
    it = OneLayer('type: "ReLU6"', [-1.0, 0, 1, 5.9, 6, 7])
    it.forward()
    np.testing.assert_array_equal(it.backward([1, 2, 3, 4, 5, 6])[0], [0, 0, 3, 4, 0, 0])
