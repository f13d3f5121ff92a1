"""Reduction against numpy, finite differences, and itself on several ranks."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, contexts, distinct, rows

from scaffe.errors import ShapeError

OPERATIONS = {
    "SUM": lambda x: x.sum(axis=1),
    "ASUM": lambda x: np.abs(x).sum(axis=1),
    "SUMSQ": lambda x: (x**2).sum(axis=1),
    "MEAN": lambda x: x.mean(axis=1),
}


def text(operation, axis=0, more=""):
    return f'type: "Reduction" reduction_param {{ operation: {operation} axis: {axis} coeff: 1.5 }} {more}'


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("axis", "kept"), [(0, 0), (1, 1), (-1, 2), (-3, 0)])
def test_all_axes_from_the_given_one_on_become_one_number(operation, axis, kept):
    x = distinct(2, 3, 4)
    expected = 1.5 * OPERATIONS[operation](x.reshape(*[int(np.prod(x.shape[:kept])), -1]))
    np.testing.assert_allclose(OneLayer(text(operation, axis), x).forward()[0], expected.reshape(x.shape[:kept]))
    check_gradients(text(operation, axis), x)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_losses_and_gradients_of_all_ranks_add_up_to_one_ranks(operation, ranks):
    x = distinct(5, 3)
    whole = OneLayer(text(operation, more="loss_weight: 1"), x)
    (loss,), (gradient,) = whole.forward(), whole.backward(2)
    parts = []
    for context in contexts(5, ranks):
        it = OneLayer(text(operation, more="loss_weight: 1"), x[rows(context)], context=context)
        assert it.layer.summed_tops == 1
        parts.append((it.forward()[0], it.backward(2)[0]))
    assert sum(part for part, _ in parts) == pytest.approx(float(loss), rel=1e-12)
    np.testing.assert_allclose(np.concatenate([part for _, part in parts]), gradient, rtol=1e-12)


@pytest.mark.parametrize(("axis", "more", "mixes"), [(0, "", True), (0, "loss_weight: 1", False), (1, "", False)])
def test_samples_are_mixed_over_axis_0_unless_it_is_a_loss(axis, more, mixes):
    it = OneLayer(text("SUM", axis, more), distinct(2, 3))
    assert bool(it.layer.mixes_samples(it.bottom)) == mixes


def test_an_axis_that_is_not_there_is_refused():
    with pytest.raises(ShapeError, match=r"layer 'it'.*axis 2.*\(2, 3\)"):
        OneLayer(text("SUM", 2), distinct(2, 3))
