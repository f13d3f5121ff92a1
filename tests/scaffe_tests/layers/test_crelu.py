"""CReLU against numpy and finite differences."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import ShapeError


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4, 5), (1, 1, 2)])
def test_both_signs_are_rectified_side_by_side(shape):
    x = distinct(*shape)
    (y,) = OneLayer('type: "CReLU"', x).forward()
    np.testing.assert_array_equal(y, np.concatenate([np.maximum(x, 0), np.maximum(-x, 0)], 1))
    check_gradients('type: "CReLU"', x)


def test_a_bottom_without_channels_is_refused():
    with pytest.raises(ShapeError, match=r"layer 'it'.*axis 1, got shape \(3,\)"):
        OneLayer('type: "CReLU"', [1.0, 2, 3])
