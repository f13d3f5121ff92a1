"""AdaDelta against algorithm 1 of Zeiler 2012 in plain numpy."""

import numpy as np
import pytest
from descent import RATE, START, assert_trained


@pytest.mark.parametrize("momentum", [0.5, 0.95])
def test_adadelta_scales_the_gradient_by_the_ratio_of_two_running_means(momentum):
    squares, moves = np.zeros((2, *START.shape))

    def update(gradient, parameter, iteration):
        squares[...] = momentum * squares + (1 - momentum) * gradient**2
        move = gradient * np.sqrt((moves + 0.01) / (squares + 0.01))
        moves[...] = momentum * moves + (1 - momentum) * move**2
        return RATE * move

    assert_trained("AdaDelta", update, momentum=momentum, delta=0.01)
