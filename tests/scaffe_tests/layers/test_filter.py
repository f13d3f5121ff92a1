"""Filter against numpy's selection and finite differences."""

import numpy as np
import pytest
from gradient_check import OneLayer, distinct

import scaffe
from scaffe.errors import NetError, ShapeError
from scaffe.proto import NetParameter

TEXT = 'type: "Filter"'


def built(selector, *bottoms, tops=1):
    """Return the layer with the tops that this selector gives."""
    it = OneLayer(TEXT, *bottoms, selector, tops=tops)
    it.layer.reshape(it.bottom, it.top)
    return it


@pytest.mark.parametrize("selector", [[1, 0, 2, 0.5], [[1], [0], [0], [1]], [0, 0, 0, 0], [1, 1, 1, 1]])
def test_samples_pass_where_the_selector_is_not_0(selector):
    x, z = np.arange(24.0).reshape(4, 2, 3), np.arange(4.0)
    passing = np.reshape(selector, -1) != 0
    a, b = built(selector, x, z, tops=2).forward()
    np.testing.assert_array_equal(a, x[passing])
    np.testing.assert_array_equal(b, z[passing])


def test_samples_that_pass_get_their_gradients_and_the_others_none():
    it = built([1, 0, 1], distinct(3, 2))
    it.forward()
    np.testing.assert_array_equal(it.backward([[1, 2], [3, 4]], down=[True, False])[0], [[1, 2], [0, 0], [3, 4]])


def test_all_samples_pass_while_the_net_is_built():
    assert OneLayer(TEXT, distinct(4, 2), np.zeros(4)).top[0].shape == (4, 2)


def test_a_net_follows_the_selector_from_batch_to_batch_and_weighs_what_passes():
    layers = [
        {"type": "Input", "name": "in", "top": ["x", "s"], "input_param": {"shape": [{"dim": [4, 2]}, {"dim": [4]}]}},
        {"type": "Scale", "name": "scale", "bottom": ["x"], "top": ["w"]},
        {"type": "Filter", "name": "filter", "bottom": ["w", "s"], "top": ["y"], "loss_weight": [3]},
    ]
    net = scaffe.Net(NetParameter(layer=layers), scaffe.TRAIN)
    x = distinct(4, 2).astype(np.float32)
    for selector in ([1, 0, 0, 1], [0, 1, 0, 0], [1, 1, 1, 1]):
        y = net.forward(x=x, s=selector)["y"]
        np.testing.assert_array_equal(y, x[np.array(selector) != 0])
        net.backward()
        np.testing.assert_array_equal(net.blobs["w"].diff, 3 * np.array(selector)[:, None].repeat(2, axis=1))


def test_bottoms_that_do_not_fit_are_refused():
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(3, 2\).*\(4,\)"):
        OneLayer(TEXT, distinct(3, 2), np.ones(4))
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(4, 2\)"):
        OneLayer(TEXT, distinct(4, 2), np.ones((4, 2)))
    with pytest.raises(NetError, match="layer 'it'.*got 3 and 1"):
        OneLayer(TEXT, distinct(4), distinct(4), np.ones(4))


def test_the_selector_has_no_gradient_and_the_batch_is_not_divided():
    it = built([1, 0], distinct(2, 2))
    it.forward()
    with pytest.raises(NetError, match="layer 'it'.*selector.*bottom 1"):
        it.backward(1)
    assert it.layer.mixes_samples(it.bottom)


def test_a_gradient_that_is_forced_reaches_what_is_filtered_alone():
    layers = [
        {"type": "Input", "name": "in", "top": ["x", "s"], "input_param": {"shape": [{"dim": [3, 2]}, {"dim": [3]}]}},
        {"type": "Filter", "name": "filter", "bottom": ["x", "s"], "top": ["y"]},
    ]
    net = scaffe.Net(NetParameter(layer=layers, force_backward=True), scaffe.TRAIN)
    net.forward(x=distinct(3, 2), s=[1, 0, 1])
    net.backward(y=[[1, 2], [3, 4]])
    np.testing.assert_array_equal(net.blobs["x"].diff, [[1, 2], [0, 0], [3, 4]])
