"""AbsVal: y = |x|."""

from gradient_check import OneLayer
from value_by_value import Case, each_check_of


@each_check_of(Case('type: "AbsVal"', abs))
def test_abs_val_is_the_absolute_value(check, case):
    check(case)


def test_there_is_no_gradient_at_0():
    it = OneLayer('type: "AbsVal"', [0.0])
    it.forward()
    assert it.backward([5])[0] == 0
