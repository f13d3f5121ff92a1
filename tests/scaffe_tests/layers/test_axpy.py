"""Axpy against numpy and finite differences."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import ShapeError

TEXT = 'type: "Axpy"'


@pytest.mark.parametrize("factors", [(2, 3), (2, 3, 1, 1)])
def test_a_factor_for_each_channel_and_a_sum(factors):
    a, x, z = distinct(*factors), distinct(2, 3, 4, 5, seed=1), distinct(2, 3, 4, 5, seed=2)
    (y,) = OneLayer(TEXT, a, x, z).forward()
    np.testing.assert_allclose(y, a.reshape(2, 3, 1, 1) * x + z, rtol=1e-15)
    check_gradients(TEXT, a, x, z)


@pytest.mark.parametrize("down", [(True, False, False), (False, True, False), (False, False, True)])
def test_only_what_needs_a_gradient_gets_one(down):
    it = OneLayer(TEXT, distinct(1, 2), distinct(1, 2, 3), distinct(1, 2, 3))
    it.forward()
    found = it.backward(np.ones((1, 2, 3)), down=down)
    assert [bool(one.any()) for one in found] == list(down)


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        (((2, 3), (2, 4, 5), (2, 4, 5)), "a factor for each of its N x C channels"),
        (((2, 4, 5, 1), (2, 4, 5), (2, 4, 5)), "a factor for each"),
        (((2, 4), (2, 4, 5), (2, 4, 6)), "bottoms 1 and 2 have shapes"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes, said):
    with pytest.raises(ShapeError, match=f"layer 'it'.*{said}"):
        OneLayer(TEXT, *(distinct(*shape) for shape in shapes))


def test_no_samples_give_none():
    """As behind a proposal layer that found nothing."""
    it = OneLayer(TEXT, np.empty((0, 3)), np.empty((0, 3, 2)), np.empty((0, 3, 2)))
    (y,) = it.forward()
    assert y.size == 0
    assert it.backward(y)[-1].size == 0
