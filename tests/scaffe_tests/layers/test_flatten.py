"""Flatten against numpy's reshape."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import NetError, ShapeError

SHAPE = (2, 3, 4, 5)


def text(fields):
    return f'type: "Flatten" flatten_param {{ {fields} }}'


@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        ("", (2, 60)),
        ("axis: 0", (120,)),
        ("axis: 2", (2, 3, 20)),
        ("axis: 1 end_axis: 2", (2, 12, 5)),
        ("axis: -2 end_axis: -1", (2, 3, 20)),
        ("axis: 2 end_axis: 2", SHAPE),
    ],
)
def test_values_and_gradients_keep_their_order_in_the_new_shape(fields, shape):
    x, dy = distinct(*SHAPE), distinct(*shape, seed=1)
    it = OneLayer(text(fields), x)
    np.testing.assert_array_equal(it.forward()[0], x.reshape(shape))
    np.testing.assert_array_equal(it.backward(dy)[0], dy.reshape(SHAPE))


def test_gradient_agrees_with_finite_differences():
    check_gradients(text(""), distinct(2, 3, 2))


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        ("axis: 2 end_axis: 1", NetError, "axis 2 behind end_axis 1"),
        ("axis: 4", ShapeError, "axis 4"),
        ("end_axis: -5", ShapeError, "axis -5"),
    ],
)
def test_axes_that_fall_or_are_not_there_are_refused(fields, kind, message):
    with pytest.raises(kind, match=f"layer 'it'.*{message}"):
        OneLayer(text(fields), distinct(*SHAPE))


def test_it_does_not_work_in_place():
    with pytest.raises(NetError, match="layer 'it'.*in place"):
        OneLayer(text(""), distinct(2, 3), in_place=True)


@pytest.mark.parametrize(("fields", "mixes"), [("", False), ("axis: 0 end_axis: 1", True)])
def test_only_flattening_axis_0_mixes_samples(fields, mixes):
    it = OneLayer(text(fields), distinct(*SHAPE))
    assert bool(it.layer.mixes_samples(it.bottom)) == mixes
