"""Dropout: what it keeps, how often, and that ranks keep the same as one would."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, contexts, distinct, rows
from hypothesis import given
from hypothesis import strategies as st

from scaffe.context import TEST, Context
from scaffe.errors import NetError


def text(ratio=0.5):
    return f'type: "Dropout" dropout_param {{ dropout_ratio: {ratio} }}'


@pytest.mark.parametrize("ratio", [0, 0.3, 0.5, 0.9])
def test_kept_values_are_scaled_and_their_fraction_is_as_asked(ratio):
    (y,) = OneLayer(text(ratio), np.ones((100, 1000))).forward()
    kept = y != 0
    np.testing.assert_allclose(y[kept], 1 / (1 - ratio), rtol=1e-6)
    # Six standard deviations of the mean of 100,000 draws.
    assert abs(kept.mean() - (1 - ratio)) <= 6 * np.sqrt(ratio * (1 - ratio) / 100_000)


@pytest.mark.parametrize("shape", [(3, 5), (1, 2, 3, 2)])
def test_gradient_agrees_with_finite_differences(shape):
    check_gradients(text(0.4), distinct(*shape))


def test_the_test_phase_passes_through():
    x, dy = distinct(3, 4), distinct(3, 4, seed=1)
    it = OneLayer(text(), x, context=Context(phase=TEST))
    np.testing.assert_array_equal(it.forward()[0], x)
    np.testing.assert_array_equal(it.backward(dy)[0], dy)


@pytest.mark.parametrize("phase", [0, 1])
def test_in_place_gives_the_same_values_and_gradients(phase):
    x, dy = distinct(4, 5), distinct(4, 5, seed=1)
    apart = OneLayer(text(), x, context=Context(phase=phase))
    in_place = OneLayer(text(), x, context=Context(phase=phase), in_place=True)
    np.testing.assert_array_equal(in_place.forward(), apart.forward())
    np.testing.assert_array_equal(in_place.backward(dy), apart.backward(dy))


def test_each_batch_drops_other_values_and_backward_those_of_its_forward():
    it = OneLayer(text(), np.ones((4, 50)))
    (first,) = it.forward()
    it.context.batch_number += 1  # as a net does after the forward pass
    np.testing.assert_array_equal(it.backward(np.ones((4, 50)))[0], first)
    assert (it.forward()[0] != first).any()
    it.context.batch_number -= 1
    np.testing.assert_array_equal(it.forward()[0], first)


def test_seeds_and_names_drop_other_values():
    x = np.ones((4, 50))
    masks = [OneLayer(text(), x, context=Context(seed=seed)).forward()[0] for seed in (0, 1)]
    other = OneLayer(text(), x, name="another").forward()[0]
    assert (masks[0] != masks[1]).any()
    assert (masks[0] != other).any()


@given(st.integers(1, 7), st.integers(0, 9), st.integers(1, 19), st.integers(0, 3))
def test_ranks_together_drop_what_one_would(ranks, more, per_row, batch_number):
    batch = ranks + more
    x = np.ones((batch, per_row))
    (whole,) = OneLayer(text(), x, context=Context(seed=7, batch_number=batch_number)).forward()
    shares = [
        OneLayer(text(), x[rows(context)], context=context).forward()[0]
        for context in contexts(batch, ranks, seed=7, batch_number=batch_number)
    ]
    np.testing.assert_array_equal(np.concatenate(shares), whole)


def test_ranks_together_drop_what_one_would_where_axis_0_holds_several_rows_of_a_sample():
    x = np.ones((5, 3, 7))
    (whole,) = OneLayer(text(), x.reshape(15, 7), context=contexts(5, 1)[0]).forward()
    shares = [
        OneLayer(text(), x[rows(context)].reshape(-1, 7), context=context).forward()[0] for context in contexts(5, 2)
    ]
    np.testing.assert_array_equal(np.concatenate(shares), whole)


@pytest.mark.parametrize("ratio", [-0.1, 1, 1.5])
def test_a_ratio_outside_0_to_1_is_refused(ratio):
    with pytest.raises(NetError, match="dropout_ratio"):
        OneLayer(text(ratio), np.ones((2, 2)))


def test_segnets_drops_in_tests_too():
    x = np.ones((4, 50))
    fields = text().replace("}", "sample_weights_test: true }")
    (y,) = OneLayer(fields, x, context=Context(phase=TEST)).forward()
    np.testing.assert_array_equal(y, OneLayer(text(), x).forward()[0])
    assert (y == 0).any()
