"""Input: shapes from the prototxt, each rank its share, values left alone."""

import numpy as np
import pytest
from gradient_check import OneLayer

from scaffe.context import Context
from scaffe.errors import NetError, SplitError

TWO = 'type: "Input" input_param { shape { dim: 5 dim: 2 dim: 3 } shape { dim: 5 } }'


def shapes(text, **fields):
    return [blob.shape for blob in OneLayer(text, **fields).top]


def test_each_top_has_its_shape():
    assert shapes(TWO, tops=2) == [(5, 2, 3), (5,)]


def test_one_shape_serves_all_tops():
    assert shapes('type: "Input" input_param { shape { dim: 4 dim: 2 } }', tops=3) == [(4, 2)] * 3


def test_without_a_shape_the_caller_gives_one():
    it = OneLayer('type: "Input"')
    it.top[0].reshape(3, 2)
    it.layer.reshape(it.bottom, it.top)
    assert it.forward()[0].shape == (3, 2)


def test_ranks_share_the_rows():
    parts = [shapes(TWO, tops=2, context=Context(rank=rank, size=3)) for rank in range(3)]
    assert [part[0][1:] for part in parts] == [(2, 3)] * 3
    assert sum(part[0][0] for part in parts) == sum(part[1][0] for part in parts) == 5


def test_values_stay_as_the_caller_filled_them():
    it = OneLayer(TWO, tops=2)
    it.top[1].array[...] = np.arange(5)
    np.testing.assert_array_equal(it.forward()[1], np.arange(5))


def test_another_number_of_shapes_than_tops_is_refused():
    with pytest.raises(NetError, match="2 shapes for 3 tops"):
        OneLayer(TWO, tops=3)


def test_tops_with_different_batches_are_refused_over_several_ranks():
    text = 'type: "Input" input_param { shape { dim: 4 } shape { dim: 5 } }'
    assert shapes(text, tops=2) == [(4,), (5,)]
    with pytest.raises(SplitError, match="'it'"):
        OneLayer(text, tops=2, context=Context(size=2))
