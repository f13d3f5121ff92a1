"""SGD against its rule in plain numpy: momentum, weight decay, clipping."""

import numpy as np
import pytest
from descent import RATE, START, assert_trained


def rule(momentum, term=lambda gradient, parameter: gradient):
    velocity = np.zeros(START.shape)

    def update(gradient, parameter, iteration):
        velocity[...] = momentum * velocity + RATE * term(gradient, parameter)
        return velocity

    return update


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_keeps_a_velocity(momentum):
    assert_trained("SGD", rule(momentum), momentum=momentum)


def test_l2_regularization_adds_the_parameter():
    update = rule(0.9, lambda gradient, parameter: gradient + 0.25 * parameter)
    assert_trained("SGD", update, momentum=0.9, weight_decay=0.25)


def test_l1_regularization_adds_the_parameters_sign():
    update = rule(0.9, lambda gradient, parameter: gradient + 0.25 * np.sign(parameter))
    assert_trained("SGD", update, momentum=0.9, weight_decay=0.25, regularization_type="L1")


def test_clipping_bounds_the_gradients_norm():
    update = rule(0.9, lambda gradient, parameter: gradient * min(1, 3 / np.linalg.norm(gradient)))
    assert_trained("SGD", update, momentum=0.9, clip_gradients=3)


def test_passes_of_an_iteration_are_averaged():
    assert_trained("SGD", rule(0.9), momentum=0.9, iter_size=3)
