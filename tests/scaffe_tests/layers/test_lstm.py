"""LSTM: c = f c + i g, h = o tanh c, gates from x, h and a static bottom."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients
from unrolled import CONT, STATIC, N, T, X, text, unrolled

import scaffe


@pytest.mark.parametrize("static", [[], [STATIC]])
@pytest.mark.parametrize("x", [X, X.reshape(T, N, 5, 1, 1)])
def test_steps_follow_one_another_and_sequences_begin_where_cont_is_0(static, x):
    it = OneLayer(text("LSTM"), x, CONT, *static)
    expected, _ = unrolled("LSTM", it.layer.blobs, X, CONT, *static)
    np.testing.assert_allclose(it.forward()[0], expected, rtol=1e-10)


@pytest.mark.parametrize("static", [[], [STATIC]])
def test_gradients_agree_with_finite_differences(static):
    check_gradients(text("LSTM"), X, CONT, *static, smooth=[0, 2][: 1 + len(static)])


@pytest.mark.parametrize("case", ["lstm_static"])
def test_weights_that_caffe_stored_have_our_order(cases, case):
    folder = cases / "parity" / case
    net = scaffe.Net(folder / "net.prototxt", scaffe.TEST, weights=folder / "params.caffemodel")
    arrays = np.load(folder / "arrays.npz")
    for i, blob in enumerate(net.params["lstm"]):
        np.testing.assert_array_equal(blob.data, arrays[f"param_lstm_{i}"])
    assert f"param_lstm_{len(net.params['lstm'])}" not in arrays
