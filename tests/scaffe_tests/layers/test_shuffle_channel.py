"""ShuffleChannel against a loop over channels, and finite differences."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import ShapeError


def text(group):
    return f'type: "ShuffleChannel" shuffle_channel_param {{ group: {group} }}'


@pytest.mark.parametrize("group", [1, 2, 3, 6])
@pytest.mark.parametrize("rest", [(), (2, 3)])
def test_channels_of_the_groups_follow_in_turn(group, rest):
    x = distinct(2, 6, *rest)
    order = [i * (6 // group) + j for j in range(6 // group) for i in range(group)]
    np.testing.assert_array_equal(OneLayer(text(group), x).forward()[0], x[:, order])
    check_gradients(text(group), x)


def test_groups_of_unequal_size_are_refused():
    with pytest.raises(ShapeError, match="layer 'it'.*group 4 doesn't divide 6 channels"):
        OneLayer(text(4), distinct(1, 6))


def test_no_samples_give_none():
    """As behind a proposal layer that found nothing."""
    it = OneLayer(text(2), np.empty((0, 4, 2, 2)))
    (y,) = it.forward()
    assert y.size == 0
    assert it.backward(y)[-1].size == 0
