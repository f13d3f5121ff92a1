"""Region against numpy, box by box."""

import numpy as np
import pytest
from gradient_check import OneLayer, distinct

from scaffe.errors import NetError, ShapeError


def text(classes=2, softmax="true"):
    return f'type: "Region" region_param {{ num: 3 classes: {classes} softmax: {softmax} }}'


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def values_of(box, softmax):
    """Return a box's activated values, given those of the convolution."""
    classes = np.exp(box[5:]) / np.exp(box[5:]).sum() if softmax else sigmoid(box[5:])
    return [*sigmoid(box[:2]), *box[2:4], sigmoid(box[4]), *classes]


@pytest.mark.parametrize("softmax", ["true", "false"])
def test_each_boxs_values_are_activated(softmax):
    x = 8 * distinct(2, 21, 2, 3)
    (y,) = OneLayer(text(softmax=softmax), x).forward()
    for n, box, h, w in np.ndindex(2, 3, 2, 3):
        part = slice(7 * box, 7 * box + 7)
        np.testing.assert_allclose(y[n, part, h, w], values_of(x[n, part, h, w], softmax == "true"), rtol=1e-12)


def test_there_is_no_gradient():
    it = OneLayer(text(), distinct(1, 21, 1, 1))
    it.forward()
    with pytest.raises(NetError, match="layer 'it'.*no gradient for its predictions"):
        it.backward(np.zeros((1, 21, 1, 1)))


def test_channels_that_are_no_boxes_are_refused():
    with pytest.raises(ShapeError, match=r"layer 'it'.*3 boxes of 8 values need N x 24 x H x W"):
        OneLayer(text(classes=3), distinct(1, 21, 2, 2))


def test_fewer_than_4_coordinates_are_refused():
    with pytest.raises(NetError, match="layer 'it'.*needs num and classes of at least 1, and coords of at least 4"):
        OneLayer('type: "Region" region_param { num: 3 classes: 4 coords: 2 }', distinct(1, 21, 2, 2))
