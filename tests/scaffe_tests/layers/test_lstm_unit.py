"""LSTMUnit against its formulas and finite differences."""

from math import exp, tanh

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import NetError, ShapeError

TEXT = 'type: "LSTMUnit"'
CELL, GATES, CONT = distinct(1, 3, 5), distinct(1, 3, 20, seed=1) * 4, np.array([[1.0, 0, 1]])


def sigmoid(x):
    return 1 / (1 + exp(-x))


def test_a_step_forgets_takes_up_and_shows():
    cell, hidden = OneLayer(TEXT, CELL, GATES, CONT, tops=2).forward()
    for n, d in np.ndindex(3, 5):
        i, f, o, g = GATES[0, n, d::5]
        new = CONT[0, n] * sigmoid(f) * CELL[0, n, d] + sigmoid(i) * tanh(g)
        assert cell[0, n, d] == pytest.approx(new, rel=1e-10)
        assert hidden[0, n, d] == pytest.approx(sigmoid(o) * tanh(new), rel=1e-10)


def test_gradients_agree_with_finite_differences():
    check_gradients(TEXT, CELL, GATES, CONT, tops=2, smooth=[0, 1])


def test_shapes_that_do_not_fit_are_refused():
    for shapes in ([(1, 3, 5), (1, 3, 19), (1, 3)], [(2, 3, 5), (2, 3, 20), (2, 3)], [(3, 5), (3, 20), (3,)]):
        with pytest.raises(ShapeError, match="layer 'it'.*4 D"):
            OneLayer(TEXT, *map(np.zeros, shapes), tops=2)


def test_cont_has_no_gradient_and_the_batch_is_not_divided():
    it = OneLayer(TEXT, CELL, GATES, CONT, tops=2)
    it.forward()
    with pytest.raises(NetError, match="layer 'it'.*cont.*bottom 2"):
        it.backward(1, 1)
    assert "time" in it.layer.mixes_samples(it.bottom)
