"""TanH: y = tanh x."""

from math import tanh

from value_by_value import Case, assert_limits, each_check_of


@each_check_of(Case('type: "TanH"', tanh))
def test_tanh_is_the_hyperbolic_tangent(check, case):
    check(case)


def test_large_values_do_not_overflow():
    assert_limits('type: "TanH"', -1, 1)
