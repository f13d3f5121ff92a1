"""Nesterov's accelerated gradient against its rule in plain numpy."""

import numpy as np
import pytest
from descent import RATE, START, assert_trained


@pytest.mark.parametrize("momentum", [0.5, 0.9])
def test_nesterov_steps_back_by_the_old_velocity_and_ahead_by_more_than_the_new(momentum):
    velocity = np.zeros(START.shape)

    def update(gradient, parameter, iteration):
        before = velocity.copy()
        velocity[...] = momentum * before + RATE * gradient
        return (1 + momentum) * velocity - momentum * before

    assert_trained("Nesterov", update, momentum=momentum)
