"""Sigmoid: y = 1 / (1 + e^-x)."""

from value_by_value import Case, assert_limits, each_check_of, logistic


@each_check_of(Case('type: "Sigmoid"', logistic, factor=8))
def test_sigmoid_is_the_logistic_function(check, case):
    check(case)


def test_large_values_do_not_overflow():
    assert_limits('type: "Sigmoid"', 0, 1)
