"""Power: y = (scale x + shift)^power."""

import numpy as np
from gradient_check import OneLayer
from value_by_value import Case, each_check_of


@each_check_of(
    Case('type: "Power"', lambda x: x),
    Case('type: "Power" power_param { power: 2 scale: 0.5 shift: 1 }', lambda x: (0.5 * x + 1) ** 2),
    Case('type: "Power" power_param { power: 3 shift: 1.5 }', lambda x: (x + 1.5) ** 3, factor=2),
    Case('type: "Power" power_param { power: -0.5 scale: 2 shift: 3 }', lambda x: (2 * x + 3) ** -0.5, factor=2),
    Case('type: "Power" power_param { power: 0 scale: 2 }', lambda x: 1),
    Case('type: "Power" power_param { power: 2 scale: 0 shift: 3 }', lambda x: 9),
)
def test_power_is_a_power_of_scaled_and_shifted_values(check, case):
    check(case)


def test_the_gradient_is_not_a_number_at_0_as_in_caffe():
    it = OneLayer('type: "Power" power_param { power: 3 }', [0.0, 2.0])
    it.forward()
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(it.backward([1, 1])[0], [np.nan, 12])
