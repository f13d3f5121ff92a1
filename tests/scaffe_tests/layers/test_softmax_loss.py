"""SoftmaxWithLoss against its formula, finite differences, and itself divided over ranks."""

from math import exp, log

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, contexts, distinct, rows

from scaffe.errors import LabelError, NetError, ShapeError

NORMALIZATIONS = ["FULL", "VALID", "BATCH_SIZE", "NONE"]


def text(loss="", axis=1):
    return f'type: "SoftmaxWithLoss" loss_param {{ {loss} }} softmax_param {{ axis: {axis} }}'


def losses(scores, labels, axis=1):
    """Each place's loss, by the definition."""
    scores = np.moveaxis(scores, axis, -1)
    values = np.empty(labels.shape)
    for index in np.ndindex(labels.shape):
        row = scores[index]
        values[index] = log(sum(map(exp, row))) - row[int(labels[index])]
    return values


SPATIAL = distinct(5, 4, 2, 3) * 3
LABELS = np.random.default_rng(0).integers(0, 4, (5, 2, 3)).astype(float)
DIVISORS = {"FULL": LABELS.size, "BATCH_SIZE": 5, "NONE": 1}


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_loss_is_the_sum_over_the_normaliser(normalization):
    (loss,) = OneLayer(text(f"normalization: {normalization}"), SPATIAL, LABELS).forward()
    assert loss == pytest.approx(losses(SPATIAL, LABELS).sum() / DIVISORS.get(normalization, LABELS.size), rel=1e-12)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_ignored_labels_add_nothing(normalization):
    kept = LABELS != 2
    (loss,) = OneLayer(text(f"normalization: {normalization} ignore_label: 2"), SPATIAL, LABELS).forward()
    divisor = DIVISORS.get(normalization, kept.sum())
    assert loss == pytest.approx((losses(SPATIAL, LABELS) * kept).sum() / divisor, rel=1e-12)


@pytest.mark.parametrize(("normalize", "divisor"), [("true", LABELS.size), ("false", 5)])
def test_the_old_field_normalize_chooses_valid_or_batch_size(normalize, divisor):
    (loss,) = OneLayer(text(f"normalize: {normalize}"), SPATIAL, LABELS).forward()
    assert loss == pytest.approx(losses(SPATIAL, LABELS).sum() / divisor, rel=1e-12)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("ignore", ["", "ignore_label: 2", "ignore_label: 255"])
def test_gradient_agrees_with_finite_differences(normalization, ignore):
    labels = LABELS.copy()
    labels[1, 0] = 255 if "255" in ignore else 2
    check_gradients(text(f"normalization: {normalization} {ignore}"), SPATIAL, labels, smooth=[0])


@pytest.mark.parametrize(("shape", "axis", "places"), [((5, 3), 1, (5,)), ((2, 3, 5), 2, (2, 3)), ((1, 1), 1, (1,))])
def test_gradient_agrees_with_finite_differences_on_other_shapes(shape, axis, places):
    labels = np.random.default_rng(1).integers(0, shape[axis], places)
    check_gradients(text(axis=axis), distinct(*shape), labels, smooth=[0])


def test_all_labels_ignored_give_no_loss_and_no_gradient():
    it = OneLayer(text("ignore_label: 1"), distinct(3, 4), np.ones(3))
    assert it.forward()[0] == 0
    assert not it.backward(1, down=[True, False])[0].any()


def test_an_impossible_label_costs_the_logarithm_of_the_smallest_float():
    (loss,) = OneLayer(text(), [[0.0, 2000.0]], [0.0]).forward()
    assert loss == pytest.approx(-log(np.finfo(np.float32).tiny))


def test_second_top_holds_the_probabilities():
    _, prob = OneLayer(text(), SPATIAL, LABELS, tops=2).forward()
    (expected,) = OneLayer('type: "Softmax"', SPATIAL).forward()
    np.testing.assert_array_equal(prob, expected)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("ignore", ["", "ignore_label: 2"])
def test_losses_and_gradients_of_all_ranks_add_up_to_one_ranks(ranks, normalization, ignore):
    snippet = text(f"normalization: {normalization} {ignore}")
    whole = OneLayer(snippet, SPATIAL, LABELS)
    (loss,) = whole.forward()
    gradient = whole.backward(2.5, down=[True, False])[0]
    total, parts = 0.0, []
    for context in contexts(5, ranks, allsums=lambda _: [(LABELS != 2).sum()]):
        it = OneLayer(snippet, SPATIAL[rows(context)], LABELS[rows(context)], context=context)
        total += it.forward()[0]
        parts.append(it.backward(2.5, down=[True, False])[0])
    assert total == pytest.approx(loss, rel=1e-12)
    np.testing.assert_allclose(np.concatenate(parts), gradient, rtol=1e-12)


@pytest.mark.parametrize("label", [4, -1, 1.5, np.nan, np.inf])
def test_a_label_that_is_no_class_is_named_with_its_row(label):
    labels = LABELS.copy()
    labels[3, 1, 2] = label
    with pytest.raises(LabelError) as raised:
        OneLayer(text("ignore_label: 255"), SPATIAL, labels).forward()
    assert (raised.value.layer, raised.value.row, raised.value.classes) == ("it", 3, 4)
    np.testing.assert_equal(raised.value.label, label)


def test_labels_that_do_not_match_the_scores_are_refused_with_both_shapes():
    with pytest.raises(ShapeError, match=r"'it'.*\(5, 4, 2, 3\).*30 labels.*\(5,\)"):
        OneLayer(text(), SPATIAL, np.zeros(5))


def test_labels_have_no_gradient():
    it = OneLayer(text(), SPATIAL, LABELS)
    it.forward()
    with pytest.raises(NetError, match="labels"):
        it.backward(1, down=[True, True])
    assert not it.layer.allows_force_backward(1)
