"""EuclideanLoss against its formula, finite differences, and itself divided over ranks."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, contexts, distinct, rows

from scaffe.errors import ShapeError

TEXT = 'type: "EuclideanLoss"'
A, B = distinct(5, 3, 2), distinct(5, 3, 2, seed=1)


def test_loss_is_half_the_mean_squared_distance():
    (loss,) = OneLayer(TEXT, A, B).forward()
    assert loss == pytest.approx(sum((a - b) ** 2 for a, b in zip(A.flat, B.flat, strict=True)) / 10, rel=1e-12)


@pytest.mark.parametrize("smooth", [[0], [1], [0, 1]])
@pytest.mark.parametrize("shape", [(1,), (5, 3), (2, 3, 1, 2)])
def test_gradients_agree_with_finite_differences(shape, smooth):
    check_gradients(TEXT, distinct(*shape), distinct(*shape, seed=1), smooth=smooth)


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_losses_and_gradients_of_all_ranks_add_up_to_one_ranks(ranks):
    whole = OneLayer(TEXT, A, B)
    (loss,), gradient = whole.forward(), whole.backward(1)
    its = [OneLayer(TEXT, A[rows(c)], B[rows(c)], context=c) for c in contexts(5, ranks)]
    assert sum(it.forward()[0] for it in its) == pytest.approx(loss, rel=1e-12)
    parts = [it.backward(1) for it in its]
    for i in range(2):
        np.testing.assert_allclose(np.concatenate([part[i] for part in parts]), gradient[i], rtol=1e-12)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5, 2), (5, 2, 4)])
def test_bottoms_that_do_not_meet_are_refused_with_both_shapes(shape):
    with pytest.raises(ShapeError, match=r"'it'.*\(5, 3, 2\) and \(" + ", ".join(map(str, shape))):
        OneLayer(TEXT, A, np.zeros(shape))
