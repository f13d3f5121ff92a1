"""Reshape against numpy's reshape."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import NetError, ShapeError

SHAPE = (2, 3, 4, 5)
RESHAPES = [
    ("shape { dim: 2 dim: 60 }", (2, 60)),
    ("shape { dim: 0 dim: -1 }", (2, 60)),
    ("shape { dim: 0 dim: 0 dim: 20 }", (2, 3, 20)),
    ("shape { dim: -1 dim: 5 }", (24, 5)),
    ("shape { dim: 1 dim: 120 }", (1, 120)),
    ("shape { dim: 12 } axis: 1 num_axes: 2", (2, 12, 5)),
    ("shape { dim: -1 dim: 2 } axis: 2 num_axes: 1", (2, 3, 2, 2, 5)),
    ("shape { dim: 1 } axis: -1 num_axes: 0", (2, 3, 4, 5, 1)),
    ("shape { dim: 1 dim: 1 } axis: 1 num_axes: 0", (2, 1, 1, 3, 4, 5)),
    ("shape { dim: 10 dim: 2 } axis: -3", (2, 3, 10, 2)),
    ("shape { } axis: 1 num_axes: 0", SHAPE),
]
CASES = [(f'type: "Reshape" reshape_param {{ {fields} }}', shape) for fields, shape in RESHAPES]


@pytest.mark.parametrize(("text", "shape"), CASES)
def test_values_and_gradients_keep_their_order_in_the_new_shape(text, shape):
    x, dy = distinct(*SHAPE), distinct(*shape, seed=1)
    it = OneLayer(text, x)
    np.testing.assert_array_equal(it.forward()[0], x.reshape(shape))
    np.testing.assert_array_equal(it.backward(dy)[0], dy.reshape(SHAPE))


def test_gradient_agrees_with_finite_differences():
    check_gradients('type: "Reshape" reshape_param { shape { dim: 0 dim: -1 } }', distinct(2, 3, 2))


def test_another_batch_size_is_followed():
    it = OneLayer('type: "Reshape" reshape_param { shape { dim: 0 dim: -1 } }', distinct(2, 3, 2))
    it.bottom[0].array = distinct(5, 3, 2)
    it.layer.reshape(it.bottom, it.top)
    assert it.forward()[0].shape == (5, 6)


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        ("shape { dim: 7 }", ShapeError, r"\(2, 3, 4, 5\).*\(7,\)"),
        ("shape { dim: 7 dim: -1 }", ShapeError, r"120 values.*\[7, -1\]"),
        ("shape { dim: -1 dim: -1 }", NetError, r"\[-1, -1\]"),
        ("shape { dim: -2 }", NetError, r"\[-2\]"),
        ("shape { dim: 0 dim: 0 dim: 0 dim: 0 dim: 0 }", ShapeError, "dim 4"),
        ("axis: 5", ShapeError, "axis 5"),
        ("axis: 3 num_axes: 2", ShapeError, "num_axes 2"),
        ("num_axes: -2", ShapeError, "num_axes -2"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(fields, kind, message):
    with pytest.raises(kind, match=f"layer 'it'.*{message}"):
        OneLayer(f'type: "Reshape" reshape_param {{ {fields} }}', distinct(*SHAPE))


def test_it_does_not_work_in_place():
    with pytest.raises(NetError, match="layer 'it'.*in place"):
        OneLayer('type: "Reshape"', distinct(2, 3), in_place=True)


@pytest.mark.parametrize(
    ("text", "mixes"),
    [
        ('type: "Reshape" reshape_param { shape { dim: 0 dim: -1 } }', False),
        ('type: "Reshape" reshape_param { shape { dim: 60 } axis: 1 }', False),
        ('type: "Reshape" reshape_param { shape { dim: -1 dim: 5 } }', False),  # each sample makes 12 rows
        ('type: "Reshape" reshape_param { shape { dim: -1 dim: 8 } }', True),
        ('type: "Reshape" reshape_param { shape { dim: 2 dim: -1 } }', True),
    ],
)
def test_only_what_replaces_axis_0_mixes_samples(text, mixes):
    it = OneLayer(text, distinct(*SHAPE))
    assert bool(it.layer.mixes_samples(it.bottom)) == mixes
