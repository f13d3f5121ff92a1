"""Mish: y = x tanh(log(1 + e^x))."""

import numpy as np
from value_by_value import Case, assert_limits, each_check_of


@each_check_of(Case('type: "Mish"', lambda x: x * np.tanh(np.log1p(np.exp(x))), factor=9))
def test_mish_is_x_times_the_tanh_of_its_softplus(check, case):
    check(case)


def test_large_values_do_not_overflow():
    assert_limits('type: "Mish"', 0, 1e4)
