"""SmoothL1Loss against numpy, finite differences, and itself on several ranks."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, contexts, distinct, rows

from scaffe.errors import NetError, ShapeError


def text(sigma=1.0):
    return f'type: "SmoothL1Loss" smooth_l1_loss_param {{ sigma: {sigma} }}'


def loss(a, b, u=1.0, v=1.0, sigma=1.0):
    total = 0.0
    for d, weight in zip(np.ravel(u * (a - b)), np.ravel(v + 0 * a), strict=True):
        total += weight * (sigma**2 * d**2 / 2 if abs(d) < 1 / sigma**2 else abs(d) - 0.5 / sigma**2)
    return total / len(a)


@pytest.mark.parametrize("sigma", [1, 3, 0.5])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 2, 2)])
def test_small_distances_are_squared_and_large_ones_are_not(sigma, weighted, shape):
    bottoms = [2.9 * distinct(*shape, seed=seed) for seed in range(4 if weighted else 2)]
    assert OneLayer(text(sigma), *bottoms).forward()[0] == pytest.approx(loss(*bottoms, sigma=sigma), rel=1e-12)
    check_gradients(text(sigma), *bottoms, smooth=[0, 1])


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_losses_and_gradients_of_all_ranks_add_up_to_one_ranks(ranks):
    a, b = 3 * distinct(5, 4), 3 * distinct(5, 4, seed=1)
    whole = OneLayer(text(), a, b)
    (expected,), (gradient, _) = whole.forward(), whole.backward(2)
    parts = []
    for context in contexts(5, ranks):
        it = OneLayer(text(), a[rows(context)], b[rows(context)], context=context)
        assert it.layer.summed_tops == 1
        parts.append((it.forward()[0], it.backward(2)[0]))
    assert sum(part for part, _ in parts) == pytest.approx(float(expected), rel=1e-12)
    np.testing.assert_allclose(np.concatenate([part for _, part in parts]), gradient, rtol=1e-12)


def test_wrong_bottoms_are_refused():
    with pytest.raises(NetError, match="layer 'it'.*one blob of weights, as R-FCN's"):
        OneLayer(text(), *[distinct(2, 2)] * 3)
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(2, 2\) and \(2, 3\)"):
        OneLayer(text(), distinct(2, 2), distinct(2, 3))
    with pytest.raises(NetError, match="layer 'it'.*sigma must be above 0"):
        OneLayer(text(0), distinct(2, 2), distinct(2, 2))
