"""Adam against algorithm 1 of Kingma and Ba 2015 in plain numpy."""

import numpy as np
import pytest
from descent import RATE, START, assert_trained


@pytest.mark.parametrize(("first", "second"), [(0.9, 0.999), (0.5, 0.75), (0.0, 0.0)])
def test_adam_corrects_both_running_means_for_their_start(first, second):
    mean, square = np.zeros((2, *START.shape))

    def update(gradient, parameter, iteration):
        t = iteration + 1
        mean[...] = first * mean + (1 - first) * gradient
        square[...] = second * square + (1 - second) * gradient**2
        return RATE * np.sqrt(1 - second**t) / (1 - first**t) * mean / (np.sqrt(square) + 1e-3)

    assert_trained("Adam", update, momentum=first, momentum2=second, delta=1e-3)
