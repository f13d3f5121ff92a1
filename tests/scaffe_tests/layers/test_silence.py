"""Silence: takes anything, gives nothing, and sends back zeros."""

import numpy as np
from gradient_check import OneLayer, distinct


def test_gradients_of_all_bottoms_that_ask_are_zero():
    it = OneLayer('type: "Silence"', distinct(3, 2), distinct(5), tops=0)
    for blob in it.bottom:
        blob.diff_array[...] = 7
    it.forward()
    first, second = it.backward(down=[True, False])
    assert (first == 0).all()
    assert (second == 7).all()


def test_bottoms_keep_their_values():
    x = distinct(3, 2)
    it = OneLayer('type: "Silence"', x, tops=0)
    it.forward()
    np.testing.assert_array_equal(it.bottom[0].array, x)
