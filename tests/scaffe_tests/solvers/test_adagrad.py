"""AdaGrad against its rule in plain numpy."""

import numpy as np
import pytest
from descent import RATE, START, assert_trained


@pytest.mark.parametrize("delta", [1e-8, 0.5])
def test_adagrad_divides_by_the_root_of_all_squares_so_far(delta):
    squares = np.zeros(START.shape)

    def update(gradient, parameter, iteration):
        squares[...] += gradient**2
        return RATE * gradient / (np.sqrt(squares) + delta)

    assert_trained("AdaGrad", update, delta=delta)
