"""BNLL: y = log(1 + e^x)."""

from math import exp, log1p

from value_by_value import Case, assert_limits, each_check_of


@each_check_of(Case('type: "BNLL"', lambda x: log1p(exp(x)), factor=8))
def test_bnll_is_the_logarithm_of_1_plus_e_to_the_x(check, case):
    check(case)


def test_large_values_do_not_overflow():
    assert_limits('type: "BNLL"', 0, 1e4)
