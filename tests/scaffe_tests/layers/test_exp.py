"""Exp: y = base^(scale x + shift)."""

from math import exp

import pytest
from gradient_check import OneLayer
from value_by_value import Case, each_check_of

from scaffe.errors import NetError


@each_check_of(
    Case('type: "Exp"', exp),
    Case('type: "Exp" exp_param { base: 2 scale: 3 shift: -0.5 }', lambda x: 2 ** (3 * x - 0.5), factor=2),
    Case('type: "Exp" exp_param { base: 0.5 }', lambda x: 0.5**x),
)
def test_exp_is_a_power_of_its_base(check, case):
    check(case)


@pytest.mark.parametrize("base", [0, -2])
def test_a_base_that_is_not_above_0_is_refused(base):
    with pytest.raises(NetError, match=f"layer 'it'.*base {base};"):
        OneLayer(f'type: "Exp" exp_param {{ base: {base} }}', [1.0])
