"""HardSwish: y = x min(max(x + 3, 0), 6) / 6."""

from value_by_value import Case, assert_limits, each_check_of


@each_check_of(Case('type: "HardSwish"', lambda x: x * min(max(x + 3, 0), 6) / 6, factor=11.3))
def test_hard_swish_is_x_times_a_sigmoid_of_lines(check, case):
    check(case)


def test_large_values_are_0_and_x():
    assert_limits('type: "HardSwish"', 0, 1e4)
