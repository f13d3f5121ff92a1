"""RNN: h = tanh(W x + b + V h), y = tanh(U h + c)."""

import json

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients
from unrolled import CONT, STATIC, N, T, X, text, unrolled

import scaffe


@pytest.mark.parametrize("static", [[], [STATIC]])
@pytest.mark.parametrize("x", [X, X.reshape(T, N, 5, 1, 1)])
def test_steps_follow_one_another_and_sequences_begin_where_cont_is_0(static, x):
    it = OneLayer(text("RNN"), x, CONT, *static)
    expected, _ = unrolled("RNN", it.layer.blobs, X, CONT, *static)
    np.testing.assert_allclose(it.forward()[0], expected, rtol=1e-10)


@pytest.mark.parametrize("static", [[], [STATIC]])
def test_gradients_agree_with_finite_differences(static):
    check_gradients(text("RNN"), X, CONT, *static, smooth=[0, 2][: 1 + len(static)])


@pytest.mark.parametrize("case", ["rnn_two_passes", "rnn_carry_two_passes"])
def test_two_passes_are_caffes(cases, case):
    folder = cases / "parity" / case
    meta, arrays = json.loads((folder / "meta.json").read_text()), np.load(folder / "arrays.npz")
    net = scaffe.Net(folder / "net.prototxt", getattr(scaffe, meta["phase"]))
    for i, blob in enumerate(net.params["rnn"]):
        blob.data[...] = arrays[f"param_rnn_{i}"]
    for name in ("x", "cont"):
        net.blobs[name].data[...] = arrays[f"in_{name}"]
    for suffix in ("", "_pass2"):
        net.clear_param_diffs()
        net.forward()
        close(net.blobs["y"].data, arrays["top_y" + suffix])
        net.blobs["y"].diff[...] = arrays["topdiff_y" + suffix]
        net.backward()
        close(net.blobs["x"].diff, arrays["bottomdiff_x" + suffix])
        for i, blob in enumerate(net.params["rnn"]):
            close(blob.diff, arrays[f"paramdiff_rnn_{i}{suffix}"])


def close(ours, caffes):
    assert np.abs(ours - caffes).max() <= 1e-5 * np.abs(caffes).max()


@pytest.mark.parametrize("case", ["rnn", "rnn_expose_hidden"])
def test_weights_that_caffe_stored_have_our_order(cases, case):
    folder = cases / "parity" / case
    net = scaffe.Net(folder / "net.prototxt", scaffe.TEST, weights=folder / "params.caffemodel")
    arrays = np.load(folder / "arrays.npz")
    for i, blob in enumerate(net.params["rnn"]):
        np.testing.assert_array_equal(blob.data, arrays[f"param_rnn_{i}"])
    assert f"param_rnn_{len(net.params['rnn'])}" not in arrays
