"""BatchReindex against numpy's indexing and finite differences."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import LabelError, NetError, ShapeError

TEXT = 'type: "BatchReindex"'


@pytest.mark.parametrize("indices", [[0], [2, 0, 2, 2, 1], [1, 1]])
@pytest.mark.parametrize("shape", [(3,), (3, 2), (3, 2, 2)])
def test_samples_are_picked_in_order_and_gradients_of_copies_add_up(indices, shape):
    x = distinct(*shape)
    np.testing.assert_array_equal(OneLayer(TEXT, x, indices).forward()[0], x[indices])
    check_gradients(TEXT, x, indices, smooth=[0])


@pytest.mark.parametrize("index", [3, -1, 0.5])
def test_an_index_without_a_sample_is_named(index):
    with pytest.raises(LabelError, match=f"layer 'it'.*{index:g}.*row 1.*0 to 2"):
        OneLayer(TEXT, distinct(3, 2), [0, index]).forward()


def test_indices_are_a_list_and_have_no_gradient():
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(1, 2\)"):
        OneLayer(TEXT, distinct(3, 2), [[0, 1]])
    it = OneLayer(TEXT, distinct(3, 2), [0, 1])
    it.forward()
    with pytest.raises(NetError, match="layer 'it'.*indices.*bottom 1"):
        it.backward(1)


def test_it_mixes_samples():
    it = OneLayer(TEXT, distinct(3, 2), [0, 1])
    assert it.layer.mixes_samples(it.bottom)
