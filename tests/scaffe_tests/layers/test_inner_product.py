"""InnerProduct against plain sums and finite differences."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import NetError, ShapeError

FILLERS = 'weight_filler { type: "gaussian" } bias_filler { type: "uniform" }'


def text(num_output, fields=""):
    return f'type: "InnerProduct" inner_product_param {{ num_output: {num_output} {FILLERS} {fields} }}'


@pytest.mark.parametrize("transpose", [False, True])
def test_each_output_is_a_weighted_sum_of_all_inputs_and_a_bias(transpose):
    x = distinct(3, 2, 5)
    it = OneLayer(text(4, f"transpose: {str(transpose).lower()}"), x)
    (y,) = it.forward()
    weights, bias = (blob.array for blob in it.layer.blobs)
    assert weights.shape == ((10, 4) if transpose else (4, 10))
    for n in range(3):
        for o in range(4):
            row = weights[:, o] if transpose else weights[o]
            assert y[n, o] == pytest.approx(bias[o] + sum(w * v for w, v in zip(row, x[n].reshape(-1), strict=True)))


@pytest.mark.parametrize(
    ("shape", "fields", "top"),
    [
        ((5, 3), "", (5, 4)),
        ((1, 2, 3, 2), "", (1, 4)),
        ((3, 2, 5), "axis: 2", (3, 2, 4)),
        ((3, 2, 5), "axis: -1 transpose: true", (3, 2, 4)),
        ((3, 5), "bias_term: false", (3, 4)),
        ((3, 5), "axis: 0", (4,)),
    ],
)
def test_gradients_agree_with_finite_differences(shape, fields, top):
    check_gradients(text(4, fields), distinct(*shape))
    assert OneLayer(text(4, fields), distinct(*shape)).top[0].shape == top


def test_parameters_that_do_not_learn_keep_their_gradients():
    it = OneLayer(text(2), distinct(3, 4))
    it.layer.param_propagate_down = [False, False]
    it.forward()
    it.backward(np.ones((3, 2)))
    assert not any(blob.diff_array.any() for blob in it.layer.blobs)


def test_another_batch_size_needs_no_new_weights():
    it = OneLayer(text(2), distinct(3, 4))
    it.bottom[0].array = distinct(5, 4)
    it.layer.reshape(it.bottom, it.top)
    assert it.forward()[0].shape == (5, 2)


def test_a_bottom_of_another_size_is_refused_with_both_shapes():
    it = OneLayer(text(2), distinct(3, 4))
    it.bottom[0].reshape(3, 5)
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(3, 5\).*\(2, 4\)"):
        it.layer.reshape(it.bottom, it.top)


def test_num_output_is_required():
    with pytest.raises(NetError, match="num_output"):
        OneLayer('type: "InnerProduct"', distinct(2, 2))


@pytest.mark.parametrize(("fields", "mixes"), [("axis: 0", True), ("axis: -2", True), ("", False)])
def test_only_axis_0_mixes_samples(fields, mixes):
    it = OneLayer(text(2, fields), distinct(2, 3))
    assert bool(it.layer.mixes_samples(it.bottom)) == mixes
