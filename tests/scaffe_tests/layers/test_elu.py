"""ELU: y = x where x > 0, else alpha (e^x - 1)."""

from math import expm1

from value_by_value import Case, assert_limits, each_check_of


@each_check_of(
    Case('type: "ELU"', lambda x: x if x > 0 else expm1(x)),
    Case('type: "ELU" elu_param { alpha: 0.5 }', lambda x: x if x > 0 else 0.5 * expm1(x)),
)
def test_elu_is_exponential_below_0(check, case):
    check(case)


def test_large_values_do_not_overflow():
    assert_limits('type: "ELU"', -1, 1e4)
