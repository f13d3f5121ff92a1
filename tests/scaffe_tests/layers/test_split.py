"""Split: all tops show the bottom's values, and their gradients add up."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct


@pytest.mark.parametrize("tops", [1, 2, 3])
def test_gradient_agrees_with_finite_differences(tops):
    check_gradients('type: "Split"', distinct(3, 5), tops=tops)


def test_tops_share_the_bottoms_memory():
    it = OneLayer('type: "Split"', distinct(2, 3), tops=3)
    it.forward()
    assert all(top.array is it.bottom[0].array for top in it.top)


def test_tops_follow_a_bottom_that_moved_to_other_memory():
    it = OneLayer('type: "Split"', distinct(2, 3), tops=2)
    it.forward()
    it.bottom[0].array = np.full((2, 3), 5.0)
    assert all((top == 5).all() for top in it.forward())
