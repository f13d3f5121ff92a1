"""Parameter: its top is its blob, whose gradient adds up."""

import numpy as np
from gradient_check import OneLayer, check_gradients

import scaffe
from scaffe.proto import NetParameter

TEXT = 'type: "Parameter" parameter_param { shape { dim: 2 dim: 3 } }'


def test_gradient_agrees_with_finite_differences():
    check_gradients(TEXT)


def test_the_top_holds_the_blobs_values_zeros_at_first():
    it = OneLayer(TEXT)
    assert it.top[0].shape == it.layer.blobs[0].shape == (2, 3)
    assert not it.forward()[0].any()
    it.layer.blobs[0].array[...] = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(it.forward()[0], np.arange(6).reshape(2, 3))


def test_a_layer_above_that_works_in_place_leaves_the_blob_alone():
    layers = [
        {"name": "p", "type": "Parameter", "top": ["p"], "parameter_param": {"shape": {"dim": [3]}}},
        {"name": "relu", "type": "ReLU", "bottom": ["p"], "top": ["p"]},
    ]
    net = scaffe.Net(NetParameter(layer=layers), scaffe.TRAIN)
    net.params["p"][0].data[...] = [-1, 0, 1]
    np.testing.assert_array_equal(net.forward()["p"], [0, 0, 1])
    np.testing.assert_array_equal(net.params["p"][0].data, [-1, 0, 1])
