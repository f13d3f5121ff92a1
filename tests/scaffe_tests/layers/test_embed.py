"""Embed against rows of its table and finite differences."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import LabelError, NetError

FILLERS = 'weight_filler { type: "gaussian" } bias_filler { type: "gaussian" }'
WORDS = np.array([[3, 0, 3], [1, 3, 0]])


def text(fields="num_output: 5 input_dim: 4"):
    return f'type: "Embed" embed_param {{ {fields} {FILLERS} }}'


def test_each_integer_gives_its_row_plus_the_bias():
    it = OneLayer(text(), WORDS)
    table, bias = (blob.array for blob in it.layer.blobs)
    assert table.shape == (4, 5)
    np.testing.assert_array_equal(it.forward()[0], table[WORDS] + bias)


@pytest.mark.parametrize("more", ["", "bias_term: false"])
@pytest.mark.parametrize("words", [WORDS, [2], [[[0]]]])
def test_gradients_agree_with_finite_differences(more, words):
    check_gradients(text("num_output: 3 input_dim: 4 " + more), words, smooth=[])


@pytest.mark.parametrize("word", [4, -1, 0.5, np.nan])
def test_what_is_no_word_is_named_with_its_row(word):
    words = WORDS.astype(float)
    words[1, 1] = word
    with pytest.raises(LabelError) as raised:
        OneLayer(text(), words).forward()
    assert (raised.value.layer, raised.value.row, raised.value.classes) == ("it", 1, 4)


@pytest.mark.parametrize("fields", ["num_output: 5", "input_dim: 4"])
def test_both_sizes_are_required(fields):
    with pytest.raises(NetError, match="layer 'it'.*needs"):
        OneLayer(text(fields), WORDS)


def test_integers_have_no_gradient():
    it = OneLayer(text(), distinct(2).round())
    it.forward()
    with pytest.raises(NetError, match="layer 'it'.*gradient"):
        it.backward(1)
    assert not it.layer.allows_force_backward(0)
