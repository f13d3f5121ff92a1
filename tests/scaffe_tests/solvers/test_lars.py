"""LARS against algorithm 1 of You, Gitman and Ginsburg 2017 in plain numpy."""

import numpy as np
import pytest
from descent import RATE, START, assert_trained


@pytest.mark.parametrize(("momentum", "trust", "decay"), [(0.0, 0.5, 0.0), (0.9, 0.02, 0.25)])
def test_lars_makes_the_rate_proportional_to_the_parameters_norm(momentum, trust, decay):
    velocity = np.zeros(START.shape)

    def update(gradient, parameter, iteration):
        norm = np.linalg.norm(parameter)
        local = trust * norm / (np.linalg.norm(gradient) + decay * norm)
        velocity[...] = momentum * velocity + RATE * local * (gradient + decay * parameter)
        return velocity

    assert_trained("LARS", update, momentum=momentum, lars_trust=trust, weight_decay=decay)
