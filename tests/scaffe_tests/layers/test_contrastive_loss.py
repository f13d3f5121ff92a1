"""ContrastiveLoss against its formula and finite differences."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import NetError, ShapeError

A, B = distinct(6, 4), distinct(6, 4, seed=1)
ALIKE = np.array([1, 0, 0, 2, 0, 0.5])  # labels count as integers: the last pair is not alike


def text(fields=""):
    return f'type: "ContrastiveLoss" contrastive_loss_param {{ {fields} }}'


@pytest.mark.parametrize("margin", [1, 1.5])
@pytest.mark.parametrize("legacy", [False, True])
def test_pairs_alike_cost_their_distance_and_others_what_they_lack(margin, legacy):
    loss = 0.0
    for a, b, alike in zip(A, B, ALIKE.astype(int), strict=True):
        square = ((a - b) ** 2).sum()
        lacking = max(margin - square, 0) if legacy else max(margin - square**0.5, 0) ** 2
        loss += (square if alike else lacking) / 12
    (ours,) = OneLayer(text(f"margin: {margin} legacy_version: {str(legacy).lower()}"), A, B, ALIKE).forward()
    assert ours == pytest.approx(loss, rel=1e-12)


def test_gradients_of_the_old_form_agree_with_finite_differences():
    check_gradients(text("margin: 1.5 legacy_version: true"), A, B, ALIKE, smooth=[0, 1])


def test_gradients_agree_with_finite_differences_where_the_added_distance_is_nothing():
    check_gradients(text("margin: 4096"), A * 1024, B * 1024, ALIKE, smooth=[0, 1])


def test_pairs_at_one_place_have_a_finite_gradient():
    it = OneLayer(text(), A, A, np.zeros(6))
    it.forward()
    assert np.isfinite(it.backward(1, down=[True, True, False])[0]).all()


def test_bottoms_with_pixels_of_one_are_taken_and_others_refused():
    OneLayer(text(), A.reshape(6, 4, 1, 1), B.reshape(6, 4, 1, 1), ALIKE.reshape(6, 1, 1, 1)).forward()
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(6, 2, 2\)"):
        OneLayer(text(), A.reshape(6, 2, 2), B.reshape(6, 2, 2), ALIKE)
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(5,\)"):
        OneLayer(text(), A, B, ALIKE[:5])


def test_labels_have_no_gradient():
    it = OneLayer(text(), A, B, ALIKE)
    it.forward()
    with pytest.raises(NetError, match="layer 'it'.*labels.*bottom 2"):
        it.backward(1)
