"""HingeLoss against its formula and finite differences."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import LabelError, NetError, ShapeError

SCORES, LABELS = distinct(5, 4) * 4, np.array([0, 3, 1, 1, 2])
NORMS = {"L1": 1, "L2": 2}


def text(norm):
    return f'type: "HingeLoss" hinge_loss_param {{ norm: {norm} }}'


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 1, 1), (5, 2, 2)])
def test_scores_on_the_wrong_side_of_the_margin_cost(norm, shape):
    loss = 0.0
    for row, label in zip(SCORES, LABELS, strict=True):
        for k, score in enumerate(row):
            loss += max(0, 1 - (score if k == label else -score)) ** NORMS[norm] / 5
    (ours,) = OneLayer(text(norm), SCORES.reshape(shape), LABELS).forward()
    assert ours == pytest.approx(loss, rel=1e-12)
    check_gradients(text(norm), SCORES.reshape(shape), LABELS, smooth=[0])


def test_the_bottoms_gradient_is_left_alone_until_backward():
    it = OneLayer(text("L1"), SCORES, LABELS)
    it.bottom[0].diff_array[...] = 7
    it.forward()
    assert (it.bottom[0].diff_array == 7).all()


def test_labels_are_classes_and_have_no_gradient():
    with pytest.raises(LabelError, match="layer 'it'.*label 4"):
        OneLayer(text("L1"), SCORES, [0, 4, 0, 0, 0]).forward()
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(5, 4\).*\(20,\)"):
        OneLayer(text("L1"), SCORES, np.zeros(20))
    it = OneLayer(text("L1"), SCORES, LABELS)
    it.forward()
    with pytest.raises(NetError, match="layer 'it'.*labels"):
        it.backward(1)
