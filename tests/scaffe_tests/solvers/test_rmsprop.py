"""RMSProp against its rule in plain numpy."""

import numpy as np
import pytest
from descent import RATE, START, assert_trained


@pytest.mark.parametrize("decay", [0.0, 0.75, 0.99])
def test_rmsprop_divides_by_the_root_of_a_running_mean_of_squares(decay):
    squares = np.zeros(START.shape)

    def update(gradient, parameter, iteration):
        squares[...] = decay * squares + (1 - decay) * gradient**2
        return RATE * gradient / (np.sqrt(squares) + 1e-6)

    assert_trained("RMSProp", update, rms_decay=decay, delta=1e-6)
