"""Eltwise against numpy and finite differences."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import NetError, ShapeError


def text(fields=""):
    return f'type: "Eltwise" eltwise_param {{ {fields} }}'


OPERATIONS = {
    "": lambda x: x.sum(axis=0),
    "operation: SUM": lambda x: x.sum(axis=0),
    "operation: PROD": lambda x: x.prod(axis=0),
    "operation: PROD stable_prod_grad: false": lambda x: x.prod(axis=0),
    "operation: MAX": lambda x: x.max(axis=0),
}


def bottoms(count, *shape):
    return [distinct(*shape, seed=seed) + 0.001 * seed for seed in range(count)]


@pytest.mark.parametrize("fields", OPERATIONS)
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("shape", [(5,), (2, 3, 2)])
def test_values_and_gradients(fields, count, shape):
    xs = bottoms(count, *shape)
    expected = OPERATIONS[fields](np.array(xs))
    np.testing.assert_allclose(OneLayer(text(fields), *xs).forward()[0], expected, rtol=1e-12, atol=1e-15)
    check_gradients(text(fields), *xs)


def test_a_sum_may_be_weighted():
    a, b, c = bottoms(3, 4)
    fields = "coeff: 0.5 coeff: -1 coeff: 2"
    np.testing.assert_allclose(OneLayer(text(fields), a, b, c).forward()[0], 0.5 * a - b + 2 * c, rtol=1e-12)
    check_gradients(text(fields), a, b, c)


def test_of_equal_values_the_second_gets_the_gradient_and_else_the_first():
    it = OneLayer(text("operation: MAX"), [1.0, 1, 0, 2], [1.0, 1, 2, 0], [0.0, 1, 2, 2])
    it.forward()
    np.testing.assert_array_equal(it.backward(1), [[0, 0, 0, 1], [1, 1, 1, 0], [0, 0, 0, 0]])


def test_zeros_leave_the_stable_gradient_of_a_product_whole():
    it = OneLayer(text("operation: PROD"), [0.0, 2], [3.0, 0])
    it.forward()
    np.testing.assert_array_equal(it.backward(1), [[3, 0], [0, 2]])


def test_bottoms_of_other_shapes_are_refused_with_both():
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(2, 3\).*\(3, 2\)"):
        OneLayer(text(), distinct(2, 3), distinct(3, 2))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("coeff: 1", "1 coeff for 2"),
        ("operation: PROD coeff: 1 coeff: 2", "only operation: SUM"),
        ("operation: MAX coeff: 1", "only operation: SUM"),
    ],
)
def test_coefficients_are_one_a_bottom_of_a_sum(fields, message):
    with pytest.raises(NetError, match=f"layer 'it'.*{message}"):
        OneLayer(text(fields), distinct(2), distinct(2))


def test_one_bottom_is_refused():
    with pytest.raises(NetError, match="layer 'it'.*2 or more"):
        OneLayer(text(), distinct(2))
