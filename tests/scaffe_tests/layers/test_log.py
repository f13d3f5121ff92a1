"""Log: y = log(scale x + shift), to a base."""

from math import log

import pytest
from gradient_check import OneLayer
from value_by_value import Case, each_check_of

from scaffe.errors import NetError


@each_check_of(
    Case('type: "Log"', log, factor=1, summand=2),
    Case('type: "Log" log_param { base: 10 scale: 2 shift: 3 }', lambda x: log(2 * x + 3, 10), factor=2),
    Case('type: "Log" log_param { base: 0.5 }', lambda x: log(x, 0.5), factor=1, summand=2),
)
def test_log_is_the_logarithm_to_its_base(check, case):
    check(case)


@pytest.mark.parametrize("base", [1, 0, -2])
def test_a_base_that_has_no_logarithm_is_refused(base):
    with pytest.raises(NetError, match=f"layer 'it'.*base {base};"):
        OneLayer(f'type: "Log" log_param {{ base: {base} }}', [1.0])
