"""SigmoidCrossEntropyLoss against its formula and finite differences."""

from math import exp, log

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import NetError, ShapeError

SCORES = distinct(3, 4, 2) * 6
TARGETS = np.random.default_rng(0).integers(0, 5, (3, 4, 2)) / 2  # 0, 0.5, 1, and 1.5 and 2 to be ignored
TARGETS[TARGETS == 1.5] = 2
DIVISORS = {"FULL": 24, "VALID": None, "BATCH_SIZE": 3, "NONE": 1}


def text(fields=""):
    return f'type: "SigmoidCrossEntropyLoss" loss_param {{ {fields} }}'


def loss(x, t):
    p = 1 / (1 + exp(-x))
    return -t * log(p) - (1 - t) * log(1 - p)


@pytest.mark.parametrize("normalization", DIVISORS)
def test_the_loss_is_the_sum_of_cross_entropies_over_the_normaliser(normalization):
    kept = [(x, t) for x, t in zip(SCORES.reshape(-1), TARGETS.reshape(-1), strict=True) if t != 2]
    divisor = DIVISORS[normalization] or len(kept)
    snippet = text(f"normalization: {normalization} ignore_label: 2")
    (ours,) = OneLayer(snippet, SCORES, TARGETS).forward()
    assert ours == pytest.approx(sum(loss(x, t) for x, t in kept) / divisor, rel=1e-10)
    check_gradients(snippet, SCORES, TARGETS, smooth=[0])


@pytest.mark.parametrize(("fields", "divisor"), [("", 3), ("normalize: false", 3), ("normalize: true", 24)])
def test_the_normaliser_is_the_batch_size_unless_the_prototxt_says_otherwise(fields, divisor):
    targets = np.minimum(TARGETS, 1)
    losses = [loss(x, t) for x, t in zip(SCORES.reshape(-1), targets.reshape(-1), strict=True)]
    assert OneLayer(text(fields), SCORES, targets).forward()[0] == pytest.approx(sum(losses) / divisor, rel=1e-10)


def test_large_scores_cost_what_they_are_off():
    it = OneLayer(text(), [[1e4, -1e4, 1e4, -1e4]], [[0, 1, 1, 0]])
    assert it.forward()[0] == pytest.approx(2e4)
    np.testing.assert_array_equal(it.backward(1, down=[True, False])[0], [[1, -1, 0, 0]])


def test_all_targets_ignored_give_no_loss_and_no_gradient():
    it = OneLayer(text("normalization: VALID ignore_label: 1"), SCORES, np.ones((3, 4, 2)))
    assert it.forward()[0] == 0
    assert not it.backward(1, down=[True, False])[0].any()


def test_targets_are_one_a_score_and_have_no_gradient():
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(3, 4, 2\).*\(3, 4\)"):
        OneLayer(text(), SCORES, np.zeros((3, 4)))
    it = OneLayer(text(), SCORES, TARGETS)
    it.forward()
    with pytest.raises(NetError, match="layer 'it'.*targets"):
        it.backward(1)
