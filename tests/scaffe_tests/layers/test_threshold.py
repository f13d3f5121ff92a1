"""Threshold: y = 1 where x > threshold, else 0."""

import numpy as np
import pytest
from gradient_check import OneLayer, distinct

from scaffe.errors import NetError


@pytest.mark.parametrize("in_place", [False, True])
def test_threshold_marks_the_values_above_it(in_place):
    text = 'type: "Threshold" threshold_param { threshold: 0.5 }'
    np.testing.assert_array_equal(OneLayer(text, [0.4, 0.5, 0.6], in_place=in_place).forward()[0], [0, 0, 1])


def test_the_threshold_is_0_unless_it_is_given():
    x = distinct(2, 3, 5)
    np.testing.assert_array_equal(OneLayer('type: "Threshold"', x).forward()[0], np.heaviside(x, 0))


def test_threshold_has_no_gradient():
    it = OneLayer('type: "Threshold"', [0.4])
    it.forward()
    with pytest.raises(NetError, match="layer 'it'.*gradient"):
        it.backward([1])
    it.backward([1], down=[False])
    assert not it.layer.allows_force_backward(0)
