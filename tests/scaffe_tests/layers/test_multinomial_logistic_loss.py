"""MultinomialLogisticLoss against its formula and finite differences."""

from math import log

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import LabelError, NetError, ShapeError

TEXT = 'type: "MultinomialLogisticLoss"'
P, LABELS = distinct(5, 4) + 1, np.array([0, 3, 1, 1, 2])


def test_the_loss_is_the_mean_of_the_labels_negative_logarithms():
    (loss,) = OneLayer(TEXT, P, LABELS).forward()
    assert loss == pytest.approx(-sum(log(p[label]) for p, label in zip(P, LABELS, strict=True)) / 5, rel=1e-12)


@pytest.mark.parametrize("shape", [(5, 4), (5, 2, 2)])
def test_gradient_agrees_with_finite_differences(shape):
    check_gradients(TEXT, P.reshape(shape), LABELS, smooth=[0])


def test_an_impossible_label_costs_the_logarithm_of_a_floor():
    it = OneLayer(TEXT, [[0.0, 1.0]], [0])
    assert it.forward()[0] == pytest.approx(-log(1e-20))
    assert np.isfinite(it.backward(1, down=[True, False])[0]).all()


def test_labels_are_classes_and_have_no_gradient():
    with pytest.raises(LabelError, match="layer 'it'.*label 4"):
        OneLayer(TEXT, P, [0, 4, 0, 0, 0]).forward()
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(5, 4\).*\(4,\)"):
        OneLayer(TEXT, P, np.zeros(4))
    it = OneLayer(TEXT, P, LABELS)
    it.forward()
    with pytest.raises(NetError, match="layer 'it'.*labels"):
        it.backward(1)
