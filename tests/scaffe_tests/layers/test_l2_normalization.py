"""L2Normalization against numpy and finite differences."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import ShapeError

TEXT = 'type: "L2Normalization"'


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 2, 2)])
def test_samples_have_norm_1(shape):
    x = distinct(*shape)
    norm = np.sqrt((x**2).sum(axis=tuple(range(1, x.ndim)), keepdims=True))
    np.testing.assert_allclose(OneLayer(TEXT, x).forward()[0], x / norm, rtol=1e-9)
    check_gradients(TEXT, x)


def test_a_bottom_without_channels_is_refused():
    with pytest.raises(ShapeError, match="layer 'it'.*channels on axis 1"):
        OneLayer(TEXT, distinct(3))
