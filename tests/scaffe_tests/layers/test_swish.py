"""Swish: y = x / (1 + e^(-beta x))."""

from value_by_value import Case, assert_limits, each_check_of, logistic


@each_check_of(
    Case('type: "Swish"', lambda x: x * logistic(x), factor=8),
    Case('type: "Swish" swish_param { beta: 1.5 }', lambda x: x * logistic(1.5 * x)),
)
def test_swish_is_x_times_the_logistic_function(check, case):
    check(case)


def test_large_values_do_not_overflow():
    assert_limits('type: "Swish"', 0, 1e4)
